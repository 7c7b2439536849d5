"""Time one op on two devices by turns, so that slow phases of the machine hit both.

    python examples/two_devices.py
    python examples/two_devices.py --devices cpu cuda:0 --op matmul

Each sample runs the op many times and then waits for the device, because OpenCL and CUDA devices return
before their work is done. The minimum tells what a device can do, the median what it did. `weftgrad bench` measures
whole suites in this way.
"""

import argparse
import statistics
import time

import weftgrad as wg

OPS = {
    "add": lambda x, y: x + y,
    "softmax": lambda x, y: wg.softmax(x, -1),
    "gelu": lambda x, y: wg.nn.functional.gelu(x),
    "matmul": lambda x, y: x @ y,
}


def time_once(device, op, operands, calls):
    """Return the seconds of one call, as the mean of `calls` calls."""
    wg.synchronize(device)
    begin = time.perf_counter()
    for _ in range(calls):
        op(*operands)
    wg.synchronize(device)
    return (time.perf_counter() - begin) / calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", nargs="+", default=["cpu", "opencl:0"], help="default: cpu opencl:0")
    parser.add_argument("--op", choices=OPS, default="softmax")
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of the operands (default: 1024)")
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args()

    present = [str(device) for device in wg.devices()]
    for name in options.devices:
        if name not in present:
            print(f"{name} is left out: this machine has {', '.join(present)} (`weftgrad doctor` says why)")
    devices = [wg.device(name) for name in options.devices if name in present]
    if not devices:
        parser.error("no device to measure")

    op = OPS[options.op]
    wg.manual_seed(0)
    first, second = wg.randn(options.size, options.size), wg.randn(options.size, options.size)
    operands = {device: (first.to(device), second.to(device)) for device in devices}
    reference = op(first, second)
    calls = {}
    for device in devices:
        error = (op(*operands[device]).cpu() - reference).abs().max().item()  # compiles the kernel, too
        print(f"{device!s:10} {device.driver.name}: differs by {error:.1e} at most")
        calls[device] = max(1, int(0.02 / time_once(device, op, operands[device], 3)))  # samples of 20 ms

    seconds = {device: [] for device in devices}
    for turn in range(options.samples):
        for device in devices if turn % 2 == 0 else reversed(devices):
            seconds[device].append(time_once(device, op, operands[device], calls[device]))

    print(f"{options.op} of {options.size} x {options.size}, float32       minimum      median")
    fastest = min(min(samples) for samples in seconds.values())
    for device, samples in seconds.items():
        low, middle = 1e6 * min(samples), 1e6 * statistics.median(samples)
        print(f"{device!s:32} {low:9.1f} us {middle:8.1f} us   {min(samples) / fastest:.2f} x the fastest")


if __name__ == "__main__":
    main()
