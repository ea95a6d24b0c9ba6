"""Problems with a root, their repair, and rebuilding the state."""

from msgspec import Struct

from llmc.base.errors import Refused
from llmc.config.paths import Root
from llmc.doctor import rebuild as rebuilding
from llmc.doctor import registry
from llmc.doctor.check import GROUPS as GROUPS
from llmc.doctor.check import Finding as Finding
from llmc.doctor.check import Repair
from llmc.doctor.check import summary as summary
from llmc.doctor.rebuild import Rebuilt
from llmc.doctor.rules.facts import Facts as Facts
from llmc.repo.project import open_project


class Health(Struct, frozen=True):
    """The findings, the groups that could not be checked, and notes."""

    facts: Facts
    findings: list[Finding]
    not_seen: dict[str, str]
    notes: list[str]

    @property
    def repairable(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.repairable]


def look(root: Root) -> Health:
    """Check a root; works without a valid configuration or state, and changes nothing."""
    facts = registry.examine(root)
    return Health(facts, registry.diagnose(facts), registry.not_seen(facts), registry.notes(facts))


def require_usable(found: Health) -> None:
    """Refuse to repair with an invalid configuration."""
    if found.facts.config_problems:
        raise Refused(
            "cannot repair the root: config.toml is invalid: " + "; ".join(found.facts.config_problems),
            hint="Fix the file with `llmc config edit`, then run `llmc doctor --repair` again.",
        )


def repair(root: Root, found: Health) -> list[Repair]:
    """Repair the repairable findings, and wake the daemon."""
    project = open_project(str(root.path))
    done = registry.repair_all(project, found.facts, found.repairable)
    if done:
        project.wake()
    return done


def has_state(root: Root) -> bool:
    """Whether state.json can be read."""
    return rebuilding.readable_state(open_project(str(root.path))) is not None


def rebuild(root: Root) -> Rebuilt:
    """Rebuild state.json from worktrees, sessions and task claims; keeps the old file."""
    return rebuilding.rebuild(open_project(str(root.path)))
