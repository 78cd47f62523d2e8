"""The profiles, networks and interconnects that ship are what the published measurements give."""

from conftest import CONF, shared
from tools import calibrate


def test_what_ships_is_what_the_data_give(tmp_path):
    data = shared("data", "profiles")
    assert calibrate.main([str(data), "--out", str(tmp_path)]) == 0
    written = {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("*.yaml")}
    assert [name for name, text in written.items() if (CONF / name).read_text() != text] == []
    profiles = {f"profiles/{file.name}" for file in (CONF / "profiles").glob("*.yaml")}
    assert profiles == {name for name in written if name.startswith("profiles/")}


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert calibrate.main([str(tmp_path / "no"), "--out", str(tmp_path)]) == 2
    assert "there is no folder" in capsys.readouterr().err
