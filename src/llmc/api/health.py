"""What is wrong with a root, its repair, and a new state where the old one is lost."""

from msgspec import Struct

from llmc.base.errors import Refused
from llmc.config.paths import Root
from llmc.doctor import rebuild as rebuilding
from llmc.doctor import registry
from llmc.doctor.check import Repair as Repair
from llmc.doctor.rebuild import Rebuilt as Rebuilt
from llmc.doctor.rules.facts import Facts as Facts
from llmc.doctor.rules.findings import GROUPS as GROUPS
from llmc.doctor.rules.findings import Finding as Finding
from llmc.doctor.rules.findings import summary as summary
from llmc.repo.project import open_project


class Health(Struct, frozen=True):
    """A root as it was found: what is wrong, what could not be looked at, and what else is worth knowing."""

    facts: Facts
    findings: list[Finding]
    not_seen: dict[str, str]
    notes: list[str]

    @property
    def repairable(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.repairable]


def look(root: Root) -> Health:
    """Needs no configuration or state that can be read; changes nothing."""
    facts = registry.examine(root)
    return Health(facts, registry.diagnose(facts), registry.not_seen(facts), registry.notes(facts))


def require_usable(found: Health) -> None:
    """Nothing is repaired by settings that nobody understands."""
    if found.facts.config_problems:
        raise Refused(
            "nothing is repaired while config.toml cannot be used: " + "; ".join(found.facts.config_problems),
            hint="`llmc config edit`, then again.",
        )


def repair(root: Root, found: Health) -> list[Repair]:
    """Repair what can be; a daemon that runs looks again."""
    project = open_project(str(root.path))
    done = registry.repair_all(project, found.facts, found.repairable)
    if done:
        project.wake()
    return done


def has_state(root: Root) -> bool:
    """Whether state.json can be read: a new one would know less."""
    return rebuilding.readable_state(open_project(str(root.path))) is not None


def rebuild(root: Root) -> Rebuilt:
    """A new state.json, from worktrees, sessions and claims on tasks; the old one is kept."""
    return rebuilding.rebuild(open_project(str(root.path)))
