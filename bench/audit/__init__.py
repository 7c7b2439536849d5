"""Judge the Triton kernels without a GPU: compile real calls, read their machine code, estimate their time.

machines       the GPUs that are described, with their published figures
case           one call
cases          the calls, each at a size of real training
bars           the least that each call must reach
operands       the tensors of a call, with values only where a GPU runs it
capture        the launches of a call, with the bytes of their buffers
program_text   Triton's intermediate code, parsed
program_code   the same, run on scalars: how often each loop, load and matrix product is executed
machine_code   disassembly: instructions and loops of NVIDIA's and AMD's machine code
execution      how often each instruction is executed
warp_time      how long one warp takes alone
bank_conflicts what its accesses of shared and device memory cost
launch_time    the times of a launch, how they overlap, and the constants that a GPU's measured times gave
estimate       all figures of a launch and of a call
measured       the time of a call and of the same call of PyTorch, where a GPU is present
auditing       cases on machines, in several processes
table          terminal, Markdown and JSON
command        `weftgrad audit`
"""
