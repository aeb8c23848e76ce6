"""The reader in a browser: readings under a folder, reviewed and signed by people.

catalogue.py   readings under ROOT, and the studies behind them
opened.py      one reading, as the pages need it
pictures.py    frames of a study as JPEG: checked, masked, cached
packs.py       small frames of a study that cannot be read at any place quickly
access.py      who may do what: users, tokens, sessions
guard.py       what is refused before any page sees it: hosts, origins, sizes, slow clients
app.py         addresses and answers
server.py      the listening socket
"""
