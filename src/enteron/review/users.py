"""The people of a group: a small file with argon2 hashes of their passwords, and their roles.

A reader decides and signs; a viewer only looks. Passwords are never stored, shown or logged.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from enteron.errors import EnteronError, nearest
from enteron.files import RECORD_LIMIT, read_text, write_json
from enteron.options import Options, parse_json_options
from enteron.review.formats import Role

USERS: Final = "users.json"
SHORTEST: Final = 10
"""Characters of a password."""
LONGEST: Final = 1024
"""Longer ones are refused before they are hashed, which takes time."""

_REMEDY: Final = "make it again with `enteron review user add`"
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"


class User(Options):
    """A person with a password."""

    role: Role
    hash: Annotated[str, Field(pattern=r"^\$argon2id\$", max_length=500)]


class UserFile(Options):
    """The content of the file."""

    users: dict[Annotated[str, Field(pattern=_NAME)], User] = Field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "UserFile":
        """Read the file; one that is not there has nobody."""
        if not path.exists():
            return cls()
        text = read_text(path, RECORD_LIMIT, _REMEDY)
        return parse_json_options(cls, text, path.name, _REMEDY)

    def save(self, path: Path) -> None:
        """Write the file so that only its owner can read it."""
        write_json(path, self.model_dump(mode="json"))
        os.chmod(path, 0o600)  # noqa: PTH101

    def with_user(self, name: str, password: str, role: Role) -> "UserFile":
        """The file with one more person, or with another password or role for one."""
        if re.fullmatch(_NAME, name) is None:
            raise EnteronError(
                f"'{name[:64]}' cannot be a user's name",
                "give letters, digits and ._@-, at most 64, the first a letter or a digit",
            )
        if not SHORTEST <= len(password) <= LONGEST:
            raise EnteronError(
                f"the password has {len(password)} characters",
                f"give {SHORTEST} to {LONGEST:,}",
            )
        user = User(role=role, hash=_hasher().hash(password))
        return UserFile(users={**self.users, name: user})

    def without(self, name: str) -> "UserFile":
        """The file without a person."""
        if name not in self.users:
            raise EnteronError(
                f"there is no user '{name[:64]}'",
                nearest(name, self.users) if self.users else "nobody is in the file yet",
            )
        return UserFile(users={n: user for n, user in self.users.items() if n != name})

    def authenticate(self, name: str, password: str) -> Role | None:
        """The role of a person whose password is right; None otherwise.

        An unknown name takes as long as a wrong password, so that names cannot be guessed by time.
        """
        from argon2.exceptions import Argon2Error, InvalidHashError

        if len(password) > LONGEST:
            return None
        user = self.users.get(name)
        try:
            _hasher().verify(_NOBODY if user is None else user.hash, password)
        except (Argon2Error, InvalidHashError):
            return None
        return None if user is None else user.role


def _hasher():  # noqa: ANN202 (argon2 is imported only here)
    from argon2 import PasswordHasher

    return PasswordHasher()


# Of a random password that nobody has, with the parameters of `PasswordHasher`.
_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$stx+fKd9xU77bNiWYQY2Lw$RqDrQt"
    "9dmLUSyS0iU6k8OSurL4sJvbA+6TDzS+uuOiI"
)
