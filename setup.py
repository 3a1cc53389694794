"""What pyproject.toml cannot say: an installed package has conf/ within `pipeline`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    """Copy conf/ to where `pipeline.cli.conf_files` finds it; editable installs use it in place."""

    def run(self) -> None:
        """Build the packages, then copy."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "pipeline" / "conf"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("conf", target)


setup(cmdclass={"build_py": BuildWithConf})
