"""A real SLURM of one machine, without systemd: `python tests/slurm_here.py FOLDER`.

It starts munged, slurmctld and slurmd as root, and prints the setting that SLURM's commands need.
Debian's packages slurm-wlm and munge have the programs.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={port}
SlurmdPort={other_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=15
SlurmctldTimeout=15
KillWait=20
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=short Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmHere:
    """The daemons, with all their files in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for part in ("state", "spool"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        settings = {"host": socket.gethostname().partition(".")[0], "folder": self.folder}
        text = CONFIGURATION.format(**settings, port=free_port(), other_port=free_port())
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = ("socket", "pid-file", "log-file", "seed-file")
        places = [f"--{file}={self.folder}/munge.{file.partition('-')[0]}" for file in files]
        self.spawn("munged", "--foreground", "--force", f"--key-file={key}", *places)
        wait_until(lambda: (self.folder / "munge.socket").exists())
        self.spawn("slurmctld", "-D")
        self.spawn("slurmd", "-D")
        wait_until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))

    def spawn(self, program: str, *words: str) -> None:
        with open(self.folder / f"{program}.out", "ab") as output:
            self.daemons[program] = subprocess.Popen(
                [find_program(program), *words],
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, program: str) -> None:
        self.daemons[program].kill()
        self.daemons[program].wait()

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return done.stdout

    def stop(self) -> None:
        self.ask("scancel", "--me")
        wait_until(lambda: not self.ask("squeue", "--noheader"), seconds=60)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            daemon.wait(30)


def find_program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        sys.exit(f"there is no {name}; on Debian: apt-get install slurm-wlm munge")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("SLURM did not start or stop in time; its logs are in its folder")
        time.sleep(0.2)


if __name__ == "__main__":
    slurm = SlurmHere(Path(sys.argv[1]))
    slurm.start()
    print(f"export SLURM_CONF={slurm.environment['SLURM_CONF']}", flush=True)
    print("Ctrl-C stops it.", file=sys.stderr)
    try:
        slurm.daemons["slurmctld"].wait()
    except KeyboardInterrupt:
        slurm.stop()
