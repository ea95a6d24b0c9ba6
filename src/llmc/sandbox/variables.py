"""Which of the user's environment variables a contained program gets. Pure.

Most secrets of a user are in files, which it does not see, or in variables, which it would: tokens, database URLs, the
socket of an SSH agent. So a variable is passed on if it is known to be needed, or if the user names it in `sandbox.env`.
"""

from collections.abc import Iterable, Mapping

#: a name, or the first part of names and `*`
USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("EDITOR", "VISUAL", "PAGER", "NO_COLOR", "FORCE_COLOR", "CLICOLOR*", "COLUMNS", "LINES", "CI"),
    # where the programs on PATH and their parts are, and whom they trust
    *("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "GOPATH", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
    *("NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NIX_SSL_CERT_FILE", "LOCALE_ARCHIVE", "LD_LIBRARY_PATH"),
    *("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_CONFIG_NOSYSTEM", "GIT_TERMINAL_PROMPT"),
    # of llmc; not the password that its git asks for
    *("LLMC_PORTABLE", "LLMC_SCRIPTED_*", "LLMC_STUCK_S", "LLMC_TRACE"),
)


def passed_on(environment: Mapping[str, str], more: Iterable[str]) -> dict[str, str]:
    """The usual variables, and those with these names."""
    wanted = (*USUAL, *more)
    exact = {name for name in wanted if not name.endswith("*")}
    starts = tuple(name.removesuffix("*") for name in wanted if name.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if name in exact or (starts and name.startswith(starts))
    }
