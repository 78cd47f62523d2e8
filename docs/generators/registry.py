"""A page for each group of conf/: what can be chosen on the command line, and what each is."""

from .sources import CONF, leaves, rendered

__all__ = ["pages"]

#: groups that have pages of their own, or without a choice for users
_ELSEWHERE = {
    "agent",
    "debug",
    "experiment",
    "profiles",
    "reproduction",
    "scheduler",
    "tuned",
}


def pages() -> dict[str, str]:
    """{group: page}, with an index of them."""
    names = sorted(one.name for one in CONF.iterdir() if one.is_dir() and one.name not in _ELSEWHERE)
    groups = {name: leaves(name) for name in names}
    found = {name: rendered("group", group=name, leaves=held) for name, held in groups.items()}
    return {**found, "index": rendered("groups", groups=groups)}
