"""Check `weftgrad doctor` on installations with missing or broken parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doctor_running import SETTINGS, command_runner

from weftgrad.cli import doctor_drivers, doctor_host, doctor_kernels, doctor_packages, findings, probes
from weftgrad.cli.findings import NOTE, OK, PROBLEM, Finding
from weftgrad.cli.terminal import Style


@pytest.fixture
def run(capsys, monkeypatch):
    return command_runner(capsys, monkeypatch)


def doctor(folder: Path, hidden: str = "", **settings: str | None) -> tuple[int, dict[str, Any]]:
    """Run `weftgrad doctor --json` in a process where module `hidden` fails to import; a setting of None is unset."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    if hidden:
        shadow = folder / "shadow"
        shadow.mkdir(exist_ok=True)
        (shadow / f"{hidden}.py").write_text("raise ImportError('hidden by the test')\n")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(shadow), environment.get("PYTHONPATH", ""))))
    for name, value in settings.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    process = subprocess.run(
        [sys.executable, "-m", "weftgrad.cli", "doctor", "--json"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in process.stderr
    report = json.loads(process.stdout)
    for finding in report["findings"]:
        assert finding["verdict"] in (OK, NOTE, PROBLEM)
        assert finding["text"], finding
        assert finding["remedy"] or finding["verdict"] == OK, finding
        assert "check itself failed" not in finding["text"]
    return process.returncode, report


def first_finding(report: dict[str, Any], topic: str, name: str = "") -> dict[str, Any]:
    matches = [f for f in report["findings"] if f["topic"] == topic and name in ("", f["name"])]
    assert matches, (topic, name, report)
    return matches[0]


def single_finding(check: Any, *arguments: Any) -> Finding:
    (finding,) = check(*arguments)
    return finding


# The whole report


def test_where_nothing_compiles(tmp_path):
    """Without clang, OpenCL, PATH and cache the status is 1, and each finding names its remedy."""
    (tmp_path / "file").write_text("")
    settings = {"WEFTGRAD_CLANG": "off", "PATH": "", "HOME": None, "WEFTGRAD_CACHE": str(tmp_path / "file" / "cache")}
    status, report = doctor(tmp_path, "pyopencl", **settings)
    assert status == 1
    assert set(report) == {
        "version", "python", "platform", "is_healthy", "cpu_runs", "executor", "counts", "findings"
    }  # fmt: skip
    assert set(report["findings"][0]) == {"topic", "name", "verdict", "text", "remedy", "facts"}
    assert (report["is_healthy"], report["cpu_runs"], report["executor"]) == (False, False, None)
    assert report["counts"][PROBLEM] == 2
    executor = first_finding(report, "cpu", "executor")
    assert (executor["verdict"], executor["remedy"]) == (PROBLEM, "unset WEFTGRAD_CLANG")
    assert "nothing compiles kernels for 'cpu'" in executor["text"]
    compiler = first_finding(report, "compilers for cpu")
    assert (compiler["verdict"], compiler["remedy"]) == (NOTE, "unset WEFTGRAD_CLANG")
    assert compiler["facts"]["reason"] == "WEFTGRAD_CLANG=off"
    opencl = first_finding(report, "OpenCL")
    assert opencl["verdict"] == NOTE
    assert "pip install" in opencl["remedy"]
    assert "pyopencl" in opencl["remedy"]
    assert "hidden by the test" in opencl["text"]
    cache = first_finding(report, "cache")
    assert (cache["verdict"], cache["facts"]["is_usable"]) == (PROBLEM, False)
    assert "export WEFTGRAD_CACHE=" in cache["remedy"]
    topics = list(dict.fromkeys(finding["topic"] for finding in report["findings"]))
    assert topics == ["processor", "calls of ops", "cache", "compilers for cpu", "cpu", "OpenCL", "GPU", "packages",
                      "settings"]  # fmt: skip


def test_cold_then_warm(tmp_path, monkeypatch):
    """Without HOME and OpenCL, `cpu` compiles with clang: the first process fills the cache, the next one reads it."""
    settings = {"HOME": None, "WEFTGRAD_CACHE": None, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    status, report = doctor(tmp_path, "pyopencl", **settings)
    if not report["cpu_runs"]:
        pytest.skip("no clang here")
    assert first_finding(report, "cpu", "executor")["facts"]["compiler"] == "clang"
    result = first_finding(report, "cpu", "first result")
    assert result["facts"]["compiled"] >= 1
    assert "cold" in result["text"]
    assert 0 < result["facts"]["second_seconds"] < result["facts"]["first_seconds"] < result["facts"]["process_seconds"]
    assert status == (0 if report["counts"][PROBLEM] == 0 else 1)
    cache = first_finding(report, "cache")["facts"]
    assert cache["folder"] == str(tmp_path / "cache" / "weftgrad")
    assert cache["files"] > 0
    monkeypatch.delenv("WEFTGRAD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    warm = probes.run_probe("kernel")
    assert (warm.get("is_right"), warm.get("compiled")) == (True, 0)


@pytest.mark.parametrize(
    ("verdicts", "is_right", "status"),
    [((OK, NOTE), True, 0), ((OK, PROBLEM), True, 1), ((OK,), False, 1)],
)
def test_exit_status(run, monkeypatch, verdicts, is_right, status):
    lines = [Finding("topic", "name", verdict, "text", "remedy") for verdict in verdicts]
    result = probes.ProbeResult([probes.Fact(executor="clang", is_right=is_right)], "", 1.0)
    monkeypatch.setattr("weftgrad.cli.doctor.examine", lambda: (lines, result))
    assert run("doctor")[0] == status
    actual, out = run("doctor", "--json")
    assert (actual, json.loads(out)["is_healthy"]) == (status, status == 0)


# Single checks


def test_a_page_names_remedies(run):
    lines = findings.as_text(
        [Finding("cpu", "executor", OK, "fine"), Finding("cpu", "result", NOTE, "slow", "make it fast")], Style()
    ).splitlines()
    assert [line.split() for line in lines] == [
        [], ["cpu"], ["ok", "executor", "fine"], ["note", "result", "slow"], ["remedy:", "make", "it", "fast"],
    ]  # fmt: skip


def test_an_error_in_a_check_is_a_finding():
    def check():
        yield Finding("topic", "first", OK, "fine")
        raise RuntimeError("a bug\nof two lines")

    first, second = findings.run_check("topic", check)
    assert first.verdict == OK
    assert (second.verdict, bool(second.remedy)) == (PROBLEM, True)
    assert "RuntimeError: a bug" in second.text


def test_a_world_writable_cache(tmp_path, monkeypatch, run):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("WEFTGRAD_CACHE", str(folder))
    finding = single_finding(doctor_host.check_cache)
    assert (finding.verdict, finding.remedy) == (PROBLEM, f"chmod go-w {folder}")
    status, out = run("cache")
    assert status == 1
    assert "cannot be used: other users can write to it" in out
    folder.chmod(0o700)
    assert single_finding(doctor_host.check_cache).verdict == OK


def test_a_read_only_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *arguments: False)  # permissions do not stop root
    finding = single_finding(doctor_host.check_cache)
    assert finding.verdict == PROBLEM
    assert "it cannot be written" in finding.text
    assert "WEFTGRAD_CACHE=off" in finding.remedy


def test_the_cache_is_off(monkeypatch):
    monkeypatch.setenv("WEFTGRAD_CACHE", "off")
    finding = single_finding(doctor_host.check_cache)
    assert (finding.verdict, finding.remedy) == (NOTE, "unset WEFTGRAD_CACHE")


def test_a_relative_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFTGRAD_CACHE", "somewhere")
    finding = single_finding(doctor_host.check_cache)
    assert finding.verdict == NOTE
    assert "absolute" in finding.remedy


def test_no_temporary_folder(monkeypatch):
    def refuse() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    finding = next(f for f in doctor_host.check_processor() if f.name == "temporary files")
    assert finding.verdict in (NOTE, PROBLEM)
    assert finding.remedy.startswith("export TMPDIR=")


def test_cores_that_a_control_group_allows(monkeypatch):
    from weftgrad.runtime import control_groups
    from weftgrad.runtime.backends import processor

    monkeypatch.setattr(control_groups, "cpu_quota", lambda: 0.5)
    processor._quota.cache_clear()
    try:
        finding = next(f for f in doctor_host.check_processor() if f.name == "cores")
        assert (finding.verdict, finding.facts["cores"], finding.facts["quota"]) == (OK, 1, 0.5)
    finally:
        processor._quota.cache_clear()


@pytest.mark.parametrize(
    ("reported", "verdict"),
    [(set(), NOTE), ({"sse2", "fpu"}, PROBLEM), ({"sse4_1", "sse4_2", "ssse3", "popcnt"}, OK)],
)
def test_instructions(monkeypatch, reported, verdict):
    from weftgrad.runtime.backends import processor

    monkeypatch.setattr(processor, "features", lambda: frozenset(reported))
    monkeypatch.setattr(processor, "best_instruction_set", lambda: "sse")
    finding = next(f for f in doctor_host.check_processor() if f.name == "instructions")
    assert finding.verdict == verdict
    assert finding.facts["lanes"] == 4


def test_without_the_c_path(monkeypatch):
    from weftgrad.runtime import native

    monkeypatch.setattr(native, "present", False)  # open no device meanwhile: its driver would be half in C afterwards
    finding = single_finding(doctor_packages.check_native)
    assert (finding.verdict, finding.facts["is_present"]) == (NOTE, False)
    assert "pip install --force-reinstall" in finding.remedy
    monkeypatch.setenv("WEFTGRAD_NATIVE", "0")
    assert single_finding(doctor_packages.check_native).remedy == "unset WEFTGRAD_NATIVE"


def test_devices_without_the_c_path():
    process = subprocess.run(
        [sys.executable, "-m", "weftgrad.cli", "devices"],
        env={**os.environ, "WEFTGRAD_NATIVE": "0", "NO_COLOR": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    line = "ops are called through Python, not C (WEFTGRAD_NATIVE=0); remedy: unset WEFTGRAD_NATIVE"
    assert (process.returncode, line in process.stdout) == (0, True), process


def test_devices_say_how_cpu_runs(run):
    status, out = run("devices")
    assert status == 0
    assert "\ncpu: kernels by " in out
    assert "\nops are called through " in out


def test_requirements(monkeypatch):
    lines = ["numpy>=1.26", "absent-package>=2", 'other>=1; extra == "gpu"', 'odd; platform_system == "Nowhere"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    by_name = {finding.name: finding for finding in doctor_packages.check_packages()}
    assert (by_name["required"].verdict, by_name["required"].remedy) == (NOTE, "pip install 'absent-package>=2'")
    assert by_name["gpu"].verdict == OK
    assert "pip install 'weftgrad[gpu]'" in by_name["gpu"].text
    assert by_name["torch"].verdict == OK


def test_a_clang_that_does_not_exist(monkeypatch, run):
    monkeypatch.setenv("WEFTGRAD_CLANG", "/nonexistent/clang")
    finding = single_finding(doctor_kernels.check_compilers)
    assert (finding.verdict, finding.remedy) == (PROBLEM, "unset WEFTGRAD_CLANG")


def test_a_compiler_that_fails_its_probe(monkeypatch, tmp_path, run):
    program = tmp_path / "clang"
    lines = ("#!/bin/sh", '[ "$1" = --version ] && echo clang version 18.0.0 && exit 0', "echo broken >&2", "exit 1")
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("WEFTGRAD_CLANG", str(program))
    finding = single_finding(doctor_kernels.check_compilers)
    assert (finding.verdict, finding.remedy) == (NOTE, "unset WEFTGRAD_CLANG")
    assert finding.text == f"clang version 18.0.0 ({program}): broken"


@pytest.mark.parametrize(
    ("fact", "problem", "expected"),
    [
        ({"executor": "PoCL (OpenCL)", "compiler": "opencl"}, "", {"executor": NOTE, "first result": OK}),
        ({"executor": "clang", "compiler": "clang"}, "", {"executor": OK, "first result": OK}),
        ({"executor": "clang", "compiler": "clang", "is_right": False}, "", {"executor": OK, "first result": PROBLEM}),
        (None, "the process was ended by SIGSEGV", {"executor": PROBLEM}),
    ],
)
def test_the_road_of_cpu(fact, problem, expected):
    base_fact = {"device": "cpu", "first_seconds": 0.2, "second_seconds": 1e-5, "compiled": 0, "is_right": True}
    result = probes.ProbeResult([] if fact is None else [probes.Fact(base_fact | fact)], problem, 1.0)
    by_name = {finding.name: finding for finding in doctor_kernels.check_cpu(result)}
    assert {name: finding.verdict for name, finding in by_name.items()} == expected
    assert all(finding.remedy for finding in by_name.values() if finding.verdict != OK)
    assert doctor_kernels.cpu_runs(result) is (PROBLEM not in expected.values())


def test_opencl_devices_that_crash(monkeypatch):
    """A crash is reported for the device that was being tried, and the other devices are still tried."""
    platform = {"platform": "Portable Computing Language", "version": "OpenCL 3.0 PoCL 3.0  Linux"}
    platform["library"] = "/lib/libpocl.so"
    unknown = {"handle": "cpu", "platform": "Portable Computing Language", "is_unknown_processor": True}
    base_fact = {"platform": "P", "cores": 2, "memory": 1 << 30}
    names = ("gpu", "old", "good")
    listed = [{"listed": f"opencl:{i}", "name": names[i], "is_gpu": i == 0, **base_fact} for i in range(3)]
    head = [platform, {**unknown, "is_corrected": True}, {**unknown, "is_corrected": False}, *listed]
    calls = []

    def run_probe(*words: str) -> probes.ProbeResult:
        calls.append(words)
        facts = list(head)
        for name in ("opencl:0", "opencl:1", "opencl:2", "fallback"):
            if name in words:
                continue
            facts.append({"begin": name})
            if name != "opencl:2":
                return probes.ProbeResult(list(map(probes.Fact, facts)), "the process was ended by SIGSEGV", 1.0)
            facts.append({"device": name, "is_right": True, "first_seconds": 0.1, "compiled": 1})
        return probes.ProbeResult(list(map(probes.Fact, facts)), "", 1.0)

    monkeypatch.setattr(doctor_drivers, "run_probe", run_probe)
    all_findings = list(doctor_drivers.check_opencl())
    assert all_findings[0].text == "Portable Computing Language, OpenCL 3.0 PoCL 3.0, /lib/libpocl.so"
    verdicts = [(finding.name, finding.verdict) for finding in all_findings]
    assert verdicts == [
        ("driver", OK), ("processor", OK), ("processor", NOTE),
        ("opencl:0", PROBLEM), ("opencl:1", NOTE), ("opencl:2", OK), ("fallback of cpu", NOTE),
    ]  # fmt: skip
    assert len(calls) == 4


def test_devices_that_are_not_tried(monkeypatch):
    """After four crashes no further child is started, and nothing is said against the devices that are left."""
    base_fact = {"name": "gpu", "platform": "P", "is_gpu": True, "cores": 2, "memory": 1 << 30}
    listed = [{"listed": f"opencl:{i}", **base_fact} for i in range(6)]

    def run_probe(topic: str, *skip: str) -> probes.ProbeResult:
        begin = next(fact["listed"] for fact in listed if fact["listed"] not in skip)
        facts = [probes.Fact(fact) for fact in (*listed, {"begin": begin})]
        return probes.ProbeResult(facts, "the process was ended by SIGSEGV", 1.0)

    monkeypatch.setattr(doctor_drivers, "run_probe", run_probe)
    findings = {f.name: f for f in doctor_drivers.check_opencl()}
    assert [findings[f"opencl:{i}"].verdict for i in range(6)] == [PROBLEM] * 4 + [NOTE] * 2
    assert "a kernel fails: the process was ended by SIGSEGV" in findings["opencl:3"].text
    assert findings["opencl:4"].text.endswith("not tried, because other devices crashed")
    assert not findings["opencl:4"].remedy


@pytest.mark.parametrize(
    ("facts", "problem", "verdict", "remedy"),
    [
        ([{"import_error": "no module"}], "", NOTE, "pip install --force-reinstall pyopencl"),
        ([{"platform_error": "clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR"}], "", OK, ""),
        ([{"platform_error": "none has a device"}], "", NOTE, "pip install pocl-binary-distribution"),
        ([], "the process was ended by SIGSEGV", PROBLEM, "export OCL_ICD_VENDORS=FILE.icd, one that works"),
    ],
)
def test_opencl_without_devices(monkeypatch, facts, problem, verdict, remedy):
    result = probes.ProbeResult(list(map(probes.Fact, facts)), problem, 1.0)
    monkeypatch.setattr(doctor_drivers, "run_probe", lambda *words: result)
    finding = single_finding(doctor_drivers.check_opencl)
    assert (finding.verdict, finding.remedy) == (verdict, remedy)


@pytest.mark.parametrize(
    ("facts", "verdicts"),
    [
        ([{"error": "CUDA needs cuda-bindings, which does not import"}], [NOTE]),
        ([{"error": "NVIDIA's driver does not start"}], [PROBLEM]),
        ([], [PROBLEM]),
        ([{"cuda": "13.1"}, {"listed": "cuda:0", "sm": 70, "can_run": False}], [OK, NOTE]),
        ([{"cuda": "13.1"}, {"listed": "cuda:0", "sm": 90, "can_run": False}], [OK, NOTE]),
        ([{"cuda": "13.1"}, {"listed": "cuda:0", "sm": 90, "can_run": True}], [OK, PROBLEM]),
        ([{"cuda": "13.1"}, {"listed": "cuda:0", "sm": 90, "can_run": True},
          {"device": "cuda:0", "is_right": True, "first_seconds": 1.0}], [OK, OK]),
    ],
)  # fmt: skip
def test_gpus(monkeypatch, facts, verdicts):
    for fact in facts:
        if "listed" in fact:
            fact.update(name="H100", memory=80 << 30)
    monkeypatch.setattr("weftgrad.runtime.backends.cuda_api.may_exist", lambda: True)
    result = probes.ProbeResult(list(map(probes.Fact, facts)), "", 1.0)
    monkeypatch.setattr(doctor_drivers, "run_probe", lambda *words: result)
    lines = list(doctor_drivers.check_gpu())
    assert [finding.verdict for finding in lines] == verdicts
    assert all(finding.remedy for finding in lines if finding.verdict != OK)


def test_gpus_behind_one_that_crashes(monkeypatch):
    listed = [{"listed": f"cuda:{i}", "name": "H100", "memory": 80 << 30, "sm": 90, "can_run": True} for i in range(3)]
    run = {"device": "cuda:0", "is_right": True, "first_seconds": 1.0}
    facts = [{"cuda": "13.1"}, *listed, {"begin": "cuda:0"}, run, {"begin": "cuda:1"}]
    result = probes.ProbeResult(list(map(probes.Fact, facts)), "the process was ended by SIGSEGV", 1.0)
    monkeypatch.setattr("weftgrad.runtime.backends.cuda_api.may_exist", lambda: True)
    monkeypatch.setattr(doctor_drivers, "run_probe", lambda *words: result)
    findings = list(doctor_drivers.check_gpu())
    assert [finding.verdict for finding in findings] == [OK, OK, PROBLEM, NOTE]
    assert findings[2].text.endswith("a kernel fails: the process was ended by SIGSEGV")
    assert findings[3].text.endswith("not tried, because cuda:1 crashed")


@pytest.mark.parametrize(
    ("name", "verdict"), [("cpu", OK), ("opencl:0", OK), ("opencl:9", PROBLEM), ("nonsense", PROBLEM)]
)
def test_the_default_device(monkeypatch, name, verdict):
    monkeypatch.setenv("WEFTGRAD_DEVICE", name)
    finding = list(doctor_host.check_settings(["opencl:0"]))[-1]
    assert finding.verdict == verdict
    assert finding.remedy == ("unset WEFTGRAD_DEVICE" if verdict == PROBLEM else "")


def test_a_child_that_crashes_hangs_or_does_not_start(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(fake))
    assert "no process can be started" in probes.run_probe("kernel").problem
    fake.write_text("#!/bin/sh\necho 'weftgrad-probe {\"begin\": 1}'\necho noise\nkill -SEGV $$\n")
    fake.chmod(0o755)
    result = probes.run_probe("kernel")
    assert result.facts == [{"begin": 1}]
    assert result.problem == "the process was ended by SIGSEGV"
    fake.write_text("#!/bin/sh\necho 'weftgrad-probe {\"begin\": 1}'\nexec sleep 30\n")
    result = probes.run_probe("kernel", timeout=3.0)
    assert result.facts == [{"begin": 1}]
    assert "no answer" in result.problem


# The cache
