"""The directive language. Breaks when a conditional line runs for the wrong kind of prompt."""

from llmc.agents.scripted.directives import Step, kind, steps


def test_directives_are_lines_in_order_and_other_text_is_ignored() -> None:
    prompt = "please\n@sh echo 1  \ntext @sh no\n  @sh indented\n@hang\n@unknown x\n@say a  b"
    assert steps(prompt) == [Step("sh", "echo 1"), Step("hang", ""), Step("say", "a  b")]


def test_a_prompt_without_directives_has_no_steps() -> None:
    assert steps("hello @sh\nme@example.org") == []


def test_the_header_names_id_and_kind() -> None:
    assert kind("[llmc reject-12-ab]\ntext") == "reject"
    assert kind("hello") == "message"


def test_conditional_lines_run_only_for_their_kind() -> None:
    task = "[llmc task-1]\n@sh work\n@on-conflict fix\n@on-review look\n@on-reject redo"
    assert steps(task) == [Step("sh", "work")]


def test_a_conflict_prompt_runs_the_remembered_line_and_not_the_quoted_task() -> None:
    task = "[llmc task-1]\n@sh work\n@on-conflict fix"
    assert steps("[llmc conflict-2]\nYour task was:\n@sh work", [task]) == [Step("sh", "fix")]


def test_a_conflict_prompts_own_line_wins_over_an_earlier_one() -> None:
    earlier = ["[llmc task-1]\n@on-conflict old"]
    assert steps("[llmc conflict-2]\n@on-conflict new", earlier) == [Step("sh", "new")]


def test_the_latest_earlier_prompt_is_remembered() -> None:
    earlier = ["[llmc task-1]\n@on-review one", "[llmc task-2]\n@on-review two", "[llmc message-3]\nhello"]
    assert steps("[llmc review-4]\nlook again", earlier) == [Step("sh", "two")]


def test_a_rejection_runs_its_own_directives_too() -> None:
    earlier = ["[llmc task-1]\n@on-reject redo"]
    assert steps("[llmc reject-2]\n@sh more", earlier) == [Step("sh", "redo"), Step("sh", "more")]
