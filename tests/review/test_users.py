"""The file of users: passwords as argon2 hashes, roles, and what is refused."""

import stat

import pytest

from enteron.errors import EnteronError
from enteron.review.users import Role, UserFile


@pytest.fixture(scope="module")
def users():
    return UserFile().with_user("anna", "correct horse", Role.READER)


def test_a_password_opens_and_is_not_stored(users, tmp_path):
    path = tmp_path / "users.json"
    users.save(path)
    assert "correct horse" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = UserFile.load(path)
    assert loaded.authenticate("anna", "correct horse") is Role.READER
    assert loaded.authenticate("anna", "wrong horse!") is None
    assert loaded.authenticate("ben", "correct horse") is None
    assert loaded.authenticate("anna", "x" * 5000) is None


def test_people_leave_and_change(users):
    changed = users.with_user("anna", "another horse", Role.VIEWER)
    assert changed.authenticate("anna", "correct horse") is None
    assert changed.authenticate("anna", "another horse") is Role.VIEWER
    assert users.without("anna").users == {}
    with pytest.raises(EnteronError, match="there is no user 'ann'; did you mean 'anna'"):
        users.without("ann")


def test_bad_names_and_passwords_are_refused(users):
    for name in ("", "a b", "-a", "a\n", "x" * 65, "<b>"):
        with pytest.raises(EnteronError, match="cannot be a user's name"):
            users.with_user(name, "correct horse", Role.READER)
    with pytest.raises(EnteronError, match="the password has 5 characters; give 10 to 1,024"):
        users.with_user("ben", "short", Role.READER)


def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "users.json"
    path.write_text('{"users": {"anna": {"role": "king", "hash": "$argon2id$x"}}}')
    with pytest.raises(EnteronError, match="users"):
        UserFile.load(path)
    path.write_text('{"users": {"anna": {"role": "reader", "hash": "$argon2id$x"}}}')
    assert UserFile.load(path).authenticate("anna", "correct horse") is None
