from tests.conftest import *
def test_down(scripted):
    f = scripted.set_up("w1","w2","w3")
    for _ in range(3):
        f.up()
        f.llmc("down")
    rows=[(e["action"],e.get("worker"),e.get("reason"),e.get("exit_code")) for e in f.events() if e["action"] in ("status_changed","agent_exited")]
    print(*rows,sep="\n")
