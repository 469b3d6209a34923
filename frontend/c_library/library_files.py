"""The texts beside a library: header, a program that checks it, files for CMake and pkg-config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gluonjit._version import version
from gluonjit.codegen.standalone import MESSAGES, Model, Status
from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.types import IRError, TensorType

_C_TYPES = {"f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t", "i32": "int32_t", "i64": "int64_t"}


def c_type(t: TensorType) -> str:
    """The C type of an element; IRError if C has none."""
    if t.dtype.name not in _C_TYPES:
        raise IRError(f"C has no type for {t.dtype.name}: cast the model's inputs and outputs to float32")
    return _C_TYPES[t.dtype.name]


ROUNDING = 1e-4
"""How far results may be from those that other code has computed, relative to the largest."""


def texts(
    model: Model,
    largest: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    checked: Mapping[str, int],
    exact: bool = True,
) -> dict[str, str]:
    """The files, by name. `checked`: the sizes of open dimensions in the call that main.c repeats. `exact`: whether it
    compares all bits."""
    if reserved := _RESERVED.intersection(model.dims):
        raise IRError(f"{', '.join(reserved)} means something in C: give the open dimension another name")
    given = _identifiers(inputs, taken=model.dims)
    # Automatic names of outputs are long, and one output needs none.
    names = [*given, *_identifiers(["output"] if len(outputs) == 1 else outputs, taken=[*given, *model.dims])]
    return {
        f"{model.name}.h": _header(model, largest, names),
        f"{model.name}.hpp": _cpp_header(model, names),
        "main.c": _main(model, names, checked, exact),
        f"{model.name}.pc": _pkg_config(model),
        f"{model.name}Config.cmake": _cmake(model),
    }


def _identifiers(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """C identifiers, all different."""
    found: list[str] = []
    for name in names:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        plain = plain if plain[:1].isalpha() and plain not in _RESERVED else f"x_{plain}"
        while plain in found or plain in taken:
            plain += "_"
        found.append(plain)
    return found


_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while net class new "
    "delete this template operator private public protected virtual friend namespace using try catch throw bool true "
    "false "
    # What the programs around a library use.
    "main argc argv file threads failed load check check_sizes differ_float differ_double net_ std stdin stdout stderr "
    "errno printf fprintf fopen fclose fread calloc free memcmp exit perror atoi fabs isnan isfinite".split()
)


def _product(t: TensorType) -> str:
    """The number of elements as an expression in C."""
    return " * ".join(_factor(n) for n in t.shape) or "1"


def _factor(n: Extent) -> str:
    if not isinstance(n, Dim):
        return f"(size_t){n}"
    terms = [" * ".join([f"(size_t){c}", *(f"(size_t)({name})" for name in names)]) for names, c in n.terms.items()]
    return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]


def _count(model: Model, name: str, t: TensorType) -> str:
    """The macro for the number of an argument's elements, applied to the sizes."""
    return f"{model.name.upper()}_{name.upper()}_SIZE{'' if t.is_static else f'({chr(44).join(model.dims)})'}"


def _header(model: Model, largest: int, names: Sequence[str]) -> str:
    name, upper = model.name, model.name.upper()
    types = (*model.inputs, *model.outputs)
    sizes = "".join(f"int64_t {d}, " for d in model.dims)
    after = "".join(f", int64_t {d}" for d in model.dims)
    arguments = [f"const {c_type(t)} *{n}" for t, n in zip(model.inputs, names)]
    arguments += [f"{c_type(t)} *{n}" for t, n in zip(model.outputs, names[len(model.inputs) :])]
    listed = "\n".join(f"     {n:12} {t}" for n, t in zip(names, types))
    counts = "\n".join(f"#define {_count(model, n, t)} ({_product(t)})" for n, t in zip(names, types))
    status = ",\n".join(f"    {upper}_{s.name} = {int(s)}" for s in Status)
    meaning = "\n".join(f"     {upper}_{s.name + ':':14} {MESSAGES[s]}" for s in Status if s)
    memory = "calls whose sizes are larger than before" if model.dims else "the first call"
    path = "const char *weights, " if model.weights is not None else ""
    source = ""
    if model.weights is not None:
        source = f"""
   `weights` is the path of {model.weights.name}, which is mapped and must not change while a {name} uses it."""
    limits = f"   Each size is from 1 to {largest}.\n" if model.dims else ""
    return f"""/* {model.version}: a compiled model. Made by gluonjit {version}.

   Arguments are row-major, and aligned to their elements:

{listed}

{limits}   Functions return {upper}_OK, or:

{meaning}

   A {name} may be used by any thread. Calls of {name}_run with the same {name} wait for each other; with different ones
   they run at the same time. Results have the same bits for every number of threads. After a fork, a child must create
   its own. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {name} {name};

typedef enum {{
{status}
}} {name}_status;

/* Numbers of elements. */
{counts}

/* Makes a {name} that computes on up to `threads` threads, the caller's included.{source} */
{name}_status {name}_create(int threads, {path}{name} **out);

/* The same in the caller's memory, of at least {name}_memory(threads{"".join(", " + d for d in model.dims)}) bytes,
   which must outlive it. */
{name}_status {name}_create_in(int threads, {path}void *memory, size_t bytes, {name} **out);

/* Bytes for calls with these arguments; 0 if they are not valid, or this processor cannot run the library. */
size_t {name}_memory(int threads{after});

/* Computes the outputs. Allocates memory in {memory} alone. */
{name}_status {name}_run({name} *net, {sizes}{", ".join(arguments)});

/* Ends the threads and frees the memory. No call may be running. */
void {name}_free({name} *net);

/* What a status means. */
const char *{name}_message({name}_status status);

/* Name, hash of the model and version of the compiler. */
const char *{name}_version(void);

/* What the library is of, in JSON. */
const char *{name}_describe(void);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _cpp_header(model: Model, names: Sequence[str]) -> str:
    name, upper = model.name, model.name.upper()
    n_in = len(model.inputs)
    typed = list(zip(names, (*model.inputs, *model.outputs), strict=True))
    sizes = "".join(f"int64_t {d}, " for d in model.dims)
    given = "".join(f"{d}, " for d in model.dims)
    pointers = [f"const {c_type(t)} *{n}" for n, t in typed[:n_in]] + [f"{c_type(t)} *{n}" for n, t in typed[n_in:]]
    vectors = [f"const std::vector<{c_type(t)}> &{n}" for n, t in typed[:n_in]]
    vectors += [f"std::vector<{c_type(t)}> &{n}" for n, t in typed[n_in:]]

    checks = "\n".join(
        f"""        if ({n}.size() != {_count(model, n, t)})
            throw std::invalid_argument("{name}: {n} has " + std::to_string({n}.size()) + " elements, not "
                                        + std::to_string({_count(model, n, t)}));"""
        for n, t in typed[:n_in]
    )
    path, given_path = ("const char *weights, ", "weights, ") if model.weights is not None else ("", "")
    resized = "\n".join(f"        {n}.resize({_count(model, n, t)});" for n, t in typed[n_in:])
    return f"""/* {name}.h for C++ (from C++11 on): a net that frees itself, and exceptions in place of codes. */
#ifndef {upper}_HPP
#define {upper}_HPP

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "{name}.h"

class {name}_model {{
public:
    /* Throws std::bad_alloc if there is not enough memory, else std::runtime_error. */
    explicit {name}_model({path}int threads = 1) {{
        {name} *made = nullptr;
        check({name}_create(threads, {given_path}&made));
        net_.reset(made);
    }}

    void run({sizes}{", ".join(pointers)}) {{
        check({name}_run(net_.get(), {given}{", ".join(names)}));
    }}

    /* Inputs must have as many elements as {name}.h says; outputs get as many. */
    void run({sizes}{", ".join(vectors)}) {{
        check_sizes({given}{", ".join(names[:n_in])});
{resized}
        run({given}{", ".join(f"{n}.data()" for n in names)});
    }}

    static std::string version() {{ return {name}_version(); }}

private:
    struct free_net {{
        void operator()({name} *net) const {{ {name}_free(net); }}
    }};

    static void check({name}_status status) {{
        if (status == {upper}_NO_MEMORY) throw std::bad_alloc();
        if (status != {upper}_OK) throw std::runtime_error(std::string("{name}: ") + {name}_message(status));
    }}

    static void check_sizes({sizes}{", ".join(vectors[:n_in])}) {{
{checks}
    }}

    std::unique_ptr<{name}, free_net> net_;
}};

#endif
"""


def _main(model: Model, names: Sequence[str], checked: Mapping[str, int], exact: bool) -> str:
    name, upper = model.name, model.name.upper()
    n_in = len(model.inputs)
    lines, checks = [], []
    kinds: set[str] = set()
    for k, (n, t) in enumerate(zip(names, (*model.inputs, *model.outputs), strict=True)):
        count = _count(model, n, t)
        lines.append(f"    {c_type(t)} *{n} = load(file, {count}, sizeof *{n});")
        if k >= n_in:
            lines.append(f"    {c_type(t)} *got_{n} = calloc({count} + 1, sizeof *{n});")
            differs = f"memcmp({n}, got_{n}, {count} * sizeof *{n}) != 0"
            if t.dtype.is_float and not exact:
                differs = f"differ_{c_type(t)}({n}, got_{n}, {count})"
                kinds.add(c_type(t))
            checks.append(f"    failed |= got_{n} == NULL || {differs};")
    arguments = ", ".join([*model.dims, *names[:n_in], *(f"got_{n}" for n in names[n_in:])])
    frees = "\n".join(f"    free({n});" for n in (*names, *(f"got_{n}" for n in names[n_in:])))
    sizes = "".join(f"    const int64_t {d} = {checked.get(d, 1)};\n" for d in model.dims)
    in_file = model.weights is not None
    least, path = (3, "argv[2], ") if in_file else (2, "")
    usage = f"check.bin {f'{model.weights.name} ' if model.weights is not None else ''}[threads]"
    math, how = "", "compares the bits of the results"
    same = "the stored results"
    if not exact:
        math = "#include <math.h>\n"
        how = "compares the results with those of other code, which rounds otherwise"
        same += f" but for rounding, up to {ROUNDING:g} of the largest"
    return f"""/* Repeats a stored call of {name}, and {how}: main {usage} */
{math}#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

static void *load(FILE *file, size_t count, size_t size) {{
    void *data = calloc(count + 1, size);
    if (data == NULL || fread(data, size, count, file) != count) {{
        fprintf(stderr, "the file is too short\\n");
        exit(2);
    }}
    return data;
}}

static void check({name}_status status, const char *what) {{
    if (status != {upper}_OK) {{
        fprintf(stderr, "%s: %s\\n", what, {name}_message(status));
        exit(1);
    }}
}}

{"".join(map(_differ, sorted(kinds)))}int main(int argc, char **argv) {{
    if (argc < {least}) {{
        fprintf(stderr, "usage: %s {usage}\\n", argv[0]);
        return 2;
    }}
    const int threads = argc > {least} ? atoi(argv[{least}]) : 1;
{sizes}    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) {{
        perror(argv[1]);
        return 2;
    }}
{chr(10).join(lines)}
    fclose(file);
    {name} *net = NULL;
    check({name}_create(threads, {path}&net), "create");
    check({name}_run(net, {arguments}), "run");
    {name}_free(net);
    int failed = 0;
{chr(10).join(checks)}
{frees}
    printf("%s: %s\\n", {name}_version(), failed ? "other results than stored" : "{same}");
    return failed;
}}
"""


def _differ(kind: str) -> str:
    return f"""static int differ_{kind}(const {kind} *want, const {kind} *got, size_t count) {{
    double largest = 0, apart = 0;
    for (size_t k = 0; k < count; k++) {{
        if (isfinite(want[k]) && fabs(want[k]) > largest)
            largest = fabs(want[k]);
        if (want[k] == got[k] || (isnan(want[k]) && isnan(got[k])))
            continue;
        if (!isfinite(want[k]) || !isfinite(got[k]))
            return 1;
        if (fabs((double)want[k] - got[k]) > apart)
            apart = fabs((double)want[k] - got[k]);
    }}
    return apart > {ROUNDING:g} * largest;
}}

"""


def _pkg_config(model: Model) -> str:
    name = model.name
    return f"""prefix=${{pcfiledir}}
Name: {name}
Description: a compiled model
Version: {version}
Cflags: -I${{prefix}}
Libs: -L${{prefix}} -l{name}
Libs.private: -pthread
"""


def _cmake(model: Model) -> str:
    name = model.name
    return f"""# find_package({name} CONFIG) gives the targets {name}::{name} (shared, if built) and {name}::static.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
if(NOT TARGET {name}::static)
  add_library({name}::static STATIC IMPORTED)
  set_target_properties({name}::static PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.a"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
if(NOT TARGET {name}::{name} AND EXISTS "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.so")
  add_library({name}::{name} SHARED IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}")
endif()
"""
