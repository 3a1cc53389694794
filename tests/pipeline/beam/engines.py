"""Flink, Spark and Prism as processes of this machine, fetched once and kept in a cache.

Versions are pinned. What comes from Python's index has its checksum here, Maven compares with what
the publisher gives (-C), and Go with its public list of checksums.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import listens, wait_for

CACHE = Path(os.environ.get("ENGINES", "~/.cache/bert-pipeline/engines")).expanduser()
BEAM = "2.62.0"  # of the job servers
PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
DISTRIBUTIONS = {  # requirement, checksum, and the folder of the archive that has the engine
    "flink": (
        "apache-flink-libraries==1.19.3",
        "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60",
        "apache-flink-libraries-1.19.3/deps/lib/",
    ),
    "spark": (
        "pyspark==3.5.9",
        "ea27adc39ddac9413b8951e45aa748cbed6c785971b81386efc41938f6243d93",
        "pyspark-3.5.9/deps/jars/",
    ),
}
# Both engines reflect on what Java 17 keeps closed.
OPENED = [
    *(f"java.base/{name}" for name in ("java.io", "java.lang", "java.lang.invoke", "java.net")),
    *(f"java.base/{name}" for name in ("java.nio", "java.text", "java.time", "java.util")),
    *(f"java.base/java.util.concurrent{more}" for more in ("", ".atomic", ".locks")),
    *(f"java.base/sun.{name}" for name in ("net.util", "nio.ch", "nio.cs", "security.action")),
    "java.base/sun.util.calendar",
]
JAVA = ["java", *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENED)]


def need(*tools: str) -> None:
    """Skip where a program is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")


def fetched(what: str, command: list[str], **more: str) -> None:
    """Run a command that fetches; skip where it cannot."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr + done.stdout).strip().split("\n")[-1]
        pytest.skip(f"{what} cannot be fetched: {last}")


def prism() -> Path:
    """The Prism binary."""
    binary = CACHE / "bin" / "prism"
    if not binary.exists():
        need("go")
        fetched("Prism", ["go", "install", PRISM], GOBIN=str(binary.parent))
    return binary


def distribution(name: str) -> Path:
    """The folder of an engine's jars."""
    requirement, digest, inside = DISTRIBUTIONS[name]
    folder = CACHE / requirement.replace("==", "-")
    if not folder.exists():
        need("java")
        source = CACHE / "src"
        source.mkdir(parents=True, exist_ok=True)
        (source / f"{name}.txt").write_text(f"{requirement} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(source)]
        fetched(name, [*command, "--require-hashes", "-r", str(source / f"{name}.txt")])
        beside = folder.with_name(f".{folder.name}.tmp")
        with tarfile.open(source / f"{inside.partition('/')[0]}.tar.gz") as archive:
            jars = [each for each in archive if each.name.startswith(inside)]
            archive.extractall(beside, members=jars, filter="data")
        (beside / inside).rename(folder)
        shutil.rmtree(beside)
    return folder


def job_server(root: Path, name: str) -> Path:
    """The jar of Beam's job server for an engine."""
    jar = CACHE / f"{name}-job-server" / f"{name}-job-server-{BEAM}.jar"
    if not jar.exists():
        need("java", "mvn")
        pom = root / "deploy" / "beam" / f"{name}-job-server.xml"
        words = ["mvn", "-B", "-C", "-q", "-f", str(pom), "package", f"-Dout={jar.parent}"]
        fetched(f"the job server of {name}", words)
    return jar


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """Processes of an engine, by name; their output is in files of `folder`."""

    runner: str  # the name in `conf/runner`

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.options: dict[str, object] = {}
        self.pool_port, *self.ports = free_ports(4)
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start what is not running."""
        self.run("pool", [sys.executable, "-m", "pipeline.beam.pool", f"--port={self.pool_port}"])
        wait_for(lambda: self.serves("pool", self.pool_port), "the pool")

    def run(self, name: str, words: list[str], **more: str) -> None:
        """Start a process unless it is there."""
        if name in self.processes and self.processes[name].poll() is None:
            return
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, cwd=self.root, stdout=log, stderr=log, env={**os.environ, **more}
            )

    def serves(self, name: str, port: int) -> bool:
        """Whether a process listens there; a test fails where it has ended."""
        assert self.processes[name].poll() is None, self.log(name)[-2000:]
        return listens(port)

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """End a process as a crash does."""
        self.processes[name].kill()
        self.processes[name].wait()

    def tend(self) -> None:
        """Start again what may end by itself: nothing."""

    def workers(self, driver: int) -> list[psutil.Process]:
        """The processes that do the work, of a run with this number or of the pool."""
        return started_by(self.processes["pool"].pid, "pipeline.beam.worker")

    def cancel(self) -> None:
        """Cancel the job that runs, in the engine's own way."""
        raise NotImplementedError

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Flink(Cluster):
    """A session cluster: a job manager and two task managers of two slots each."""

    SETTINGS = """
jobmanager: {{rpc: {{address: localhost, port: {rpc}}}, bind-host: localhost}}
rest: {{address: localhost, port: {rest}, bind-address: localhost}}
taskmanager:
  numberOfTaskSlots: 2
  cpu: {{cores: 2}}
  bind-host: localhost
  host: localhost
  memory:
    task: {{heap.size: 640m, off-heap.size: 0}}
    network: {{min: 192m, max: 192m}}  # a shuffle takes 16 MB and more
    managed: {{size: 128m}}
    framework: {{heap.size: 128m, off-heap.size: 128m}}
    jvm-metaspace: {{size: 256m}}
    jvm-overhead: {{min: 192m, max: 192m}}
heartbeat: {{interval: 2000}}
cluster: {{uncaught-exception-handling: FAIL}}  # else a full heap stops a job without an error
pekko: {{startup-timeout: 300s, ask: {{timeout: 300s}}}}
"""
    MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    WORKER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
    runner = "flink"

    def start(self) -> None:
        """Start what is not running."""
        jars = ":".join(map(str, sorted(distribution("flink").glob("*.jar"))))
        jar = job_server(self.root, "flink")
        super().start()
        rpc, rest, _ = self.ports
        (self.folder / "config.yaml").write_text(self.SETTINGS.format(rpc=rpc, rest=rest))
        words = [*JAVA, "-cp", jars]
        self.run("jobmanager", [*words, "-Xmx400m", self.MANAGER, "-c", str(self.folder)])
        wait_for(lambda: self.serves("jobmanager", rest), "the job manager")
        self.options = {
            "flink_master": f"localhost:{rest}",
            "flink_version": "1.19",
            "flink_job_server_jar": jar,
            "parallelism": 6,  # more than slots
            "environment_config": f"localhost:{self.pool_port}",
        }
        self.worker = [*words, "-Xmx768m", self.WORKER, "-c", str(self.folder)]
        wait_for(self.is_whole, "two task managers")

    def tend(self) -> None:
        """Start the task managers that have ended, as those who run one do.

        A thread of a job that is over may still end one, by a class that is no longer there.
        """
        for number in (1, 2):
            self.run(f"taskmanager{number}", self.worker)

    def is_whole(self) -> bool:
        """Whether both task managers have their slots to offer."""
        self.tend()
        try:
            return int(json.loads(self.ask("overview"))["slots-available"]) == 4
        except OSError:  # it starts
            return False

    def ask(self, path: str, method: str = "GET") -> str:
        """Flink's answer."""
        request = urllib.request.Request(f"http://localhost:{self.ports[1]}/v1/{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def cancel(self) -> None:
        """Cancel the job that runs, as the command `flink cancel` does."""
        running = [each["id"] for each in json.loads(self.ask("jobs"))["jobs"] if each["status"] == "RUNNING"]
        assert len(running) == 1
        self.ask(f"jobs/{running[0]}?mode=cancel", "PATCH")


class Spark(Cluster):
    """A standalone cluster: a master, two workers and Beam's job server."""

    runner = "spark"

    def start(self) -> None:
        """Start what is not running."""
        home = distribution("spark")
        jar = job_server(self.root, "spark")
        super().start()
        master, service, web = self.ports
        words = [*JAVA, "-Xmx300m", "-cp", f"{home}/*"]
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.12"}
        here["SPARK_HOME"] = str(self.home(home))
        kind = "org.apache.spark.deploy"
        self.run(
            "master",
            [*words, f"{kind}.master.Master", "--host", "localhost", "--port", str(master), "--webui-port", str(web)],
            **here,
        )
        wait_for(lambda: self.serves("master", master), "the master")
        for number in (1, 2):
            folder = self.folder / f"worker{number}"
            self.run(
                f"worker{number}",
                [
                    *words,
                    *shlex.split(
                        f"{kind}.worker.Worker --host localhost --cores 1 --memory 1g --work-dir {folder} "
                        f"--webui-port 0 spark://localhost:{master}"
                    ),
                ],
                **here,
            )
        self.run(
            "jobserver",
            [
                *JAVA,
                *shlex.split(
                    f"-Xmx500m -Dspark.default.parallelism=8 -cp {jar}:{home}/* "
                    f"org.apache.beam.runners.spark.SparkJobServerDriver --spark-master-url=spark://localhost:{master} "
                    f"--job-port={service} --artifact-port=0 --expansion-port=0 --artifacts-dir={self.folder}/staged"
                ),
            ],
            **here,
        )
        self.options = {"job_endpoint": f"localhost:{service}", "environment_config": f"localhost:{self.pool_port}"}
        wait_for(lambda: self.serves("jobserver", service), "the job server")
        wait_for(lambda: self.log("master").count("Registering worker") >= 2, "two workers")

    def cancel(self) -> None:
        """Kill the application that runs, as the button of the master's page does."""
        name = re.findall(r"with ID (app-[\d-]+)", self.log("master"))[-1]
        form = urllib.parse.urlencode({"id": name, "terminate": "true"}).encode()
        place = f"http://localhost:{self.ports[2]}/app/kill/"
        urllib.request.urlopen(place, form, timeout=60).close()

    def home(self, jars: Path) -> Path:
        """A folder as Spark's workers want it, with the jars in `jars`."""
        home = self.folder / "home"
        if not home.exists():
            home.mkdir()
            (home / "jars").symlink_to(jars)
        return home


class Prism(Cluster):
    """Prism, which each run starts for itself."""

    runner = "prism"

    def start(self) -> None:
        """Fetch it."""
        self.options = {"prism_location": prism()}

    def workers(self, driver: int) -> list[psutil.Process]:
        """The process that does the work."""
        return started_by(driver, "pipeline.beam.worker")


def started_by(process: int, words: str) -> list[psutil.Process]:
    """The processes below another one whose command has these words."""
    children = psutil.Process(process).children(recursive=True)
    return [each for each in children if words in " ".join(each.cmdline())]


def signal_process(process: psutil.Process) -> None:
    """End a process as a crash does."""
    process.send_signal(signal.SIGKILL)
