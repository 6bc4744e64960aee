"""Resuming a study: a plugin that its folder names is code, and runs only if the user names it too."""

import pytest

from favor.errors import RequestError
from favor.study.folder import save_requests
from favor.study.session import resume
from study.made_up import a_study


def test_a_plugin_that_a_folder_names_is_not_run_unless_it_is_asked_for(tmp_path):
    plugin = tmp_path / "stranger.py"
    plugin.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    save_requests(tmp_path, [a_study(plugins=(str(plugin),))])
    with pytest.raises(RequestError, match="needs the plugin .*stranger.py, which is code.*--plugin"):
        resume(tmp_path)
    assert not (tmp_path / "ran").exists()
