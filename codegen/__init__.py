"""From a planned graph to native code. This is the map.

`program` is the door: it lowers a graph to one module, a function per kernel and one that calls them, for a machine of
`target`. `interface` says what the caller has to know; `entry` is the way in from Python, `standalone` from a C
library.

| folder | what is in it | start with |
|---|---|---|
| `text` | LLVM IR as text, what each machine calls an instruction, objects, compiling in parts | `llvm` |
| `math` | values in registers, the elementwise primitives and functions such as `exp` on them | `values` |
| `loops` | loop nests for fused groups: memory, indices, vectors, reductions | `loops` |
| `threads` | the order in which kernels are called, their memory, barriers, the team | `calls` |
| `kernels` | products, convolutions, sorting, loops of the graph; the register tile that products share | `tiles` |

A folder uses those above it (`loops` and `threads` do not use each other), which a test enforces. A kernel's code is
found by the kernel's name (`text/kernel_code`).
"""
