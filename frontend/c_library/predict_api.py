"""MXNet's C interface for prediction on top of a library (`c_library/library.py`): old programs link with it unchanged.

`texts` gives `c_predict_api.h`, with the 13 functions `MXPred*`, `MXGetLastError` and `MXNDList*` as MXNet 1.9.1
declares them, and `c_predict_api.c`. The model is compiled, so what a program passes as graph and parameters is only
compared with the files that the library was built from.
"""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit._version import version
from gluonjit.codegen.standalone import Model
from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.types import IRError, TensorType

NAMES = ("c_predict_api.h", "c_predict_api.c")


def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash, which a few lines of C compute as well."""
    found = 0xCBF29CE484222325
    for byte in data:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def fingerprint(data: bytes) -> tuple[int, int]:
    """(length, hash of at most 64 KiB, spread over the data): enough to tell one file of a model from another."""
    step = max(1, len(data) // 65536)
    return len(data), fnv1a(data[::step])


def texts(model: Model, inputs: Sequence[str], outputs: Sequence[str], symbol: bytes, params: bytes) -> dict[str, str]:
    """The files. `symbol` and `params` are the contents of the model's two files. IRError for inputs and outputs that
    are not float32, and for sizes that a shape alone does not tell."""
    for t in (*model.inputs, *model.outputs):
        if t.dtype.name != "f32":
            raise IRError(f"MXNet's interface for prediction has float32 arrays alone, not {t}")
    name = model.name
    declared = ", ".join(f"{{{_quoted(n)}, {t.rank}, {_extents(model, t)}}}" for n, t in zip(inputs, model.inputs))
    results = ", ".join(
        f"{{{_quoted(n)}, {t.rank}, {_extents(model, t)}}}" for n, t in zip(outputs, model.outputs, strict=True)
    )
    sizes = "".join(f"h->sizes[{k}], " for k in range(len(model.dims)))
    pointers = [f"h->inputs[{k}]" for k in range(len(model.inputs))]
    pointers += [f"h->outputs[{k}]" for k in range(len(model.outputs))]
    (symbol_size, symbol_hash), (params_size, params_hash) = fingerprint(symbol), fingerprint(params)
    facts = {
        "@VERSION@": version,
        "@NAME@": name,
        "@UPPER@": name.upper(),
        "@RANK@": str(max(1, *(t.rank for t in (*model.inputs, *model.outputs)))),
        "@N_IN@": str(len(model.inputs)),
        "@N_OUT@": str(len(model.outputs)),
        "@N_DIMS@": str(len(model.dims)),
        "@INPUTS@": declared,
        "@OUTPUTS@": results,
        "@SYMBOL_SIZE@": str(symbol_size),
        "@SYMBOL_HASH@": f"{symbol_hash:#x}u",
        "@PARAMS_SIZE@": str(params_size),
        "@PARAMS_HASH@": f"{params_hash:#x}u",
        "@RUN@": f"{name}_run(h->net->net, {sizes}{', '.join(pointers)})",
    }
    source = _SOURCE
    for key, value in facts.items():
        source = source.replace(key, value)
    return dict(zip(NAMES, (_HEADER.replace("@VERSION@", version), source)))


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in text) + '"'


def _extents(model: Model, t: TensorType) -> str:
    return "{" + ", ".join(_extent(model, n, t) for n in t.shape) + "}"


def _extent(model: Model, n: Extent, t: TensorType) -> str:
    """{factor, number of the dimension, rest}: a size is factor * dimension + rest."""
    if not isinstance(n, Dim):
        return f"{{0, 0, {n}}}"
    terms = dict(n.terms)
    rest = terms.pop((), 0)
    if len(terms) != 1 or len(next(iter(terms))) != 1:
        raise IRError(f"MXNet's interface for prediction has no shapes such as {t}: leave fewer dimensions open")
    ((names, factor),) = terms.items()
    return f"{{{factor}, {model.dims.index(names[0])}, {rest}}}"


_HEADER = """/* MXNet's C interface for prediction, for a model that gluonjit @VERSION@ has compiled. */
#ifndef MXNET_C_PREDICT_API_H_
#define MXNET_C_PREDICT_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define MXNET_EXTERN_C extern "C"
#else
#define MXNET_EXTERN_C
#endif

#ifndef MXNET_DLL
#define MXNET_DLL
#endif

typedef uint32_t mx_uint;
typedef float mx_float;
typedef void *PredictorHandle;
typedef void *NDListHandle;
typedef void *NDArrayHandle;
typedef void (*PredMonitorCallback)(const char *, NDArrayHandle, void *);

/* Functions return 0, or -1: then this says why, for the calling thread. */
const char *MXGetLastError(void);

int MXPredCreate(const char *symbol_json_str, const void *param_bytes, int param_size, int dev_type, int dev_id,
                 mx_uint num_input_nodes, const char **input_keys, const mx_uint *input_shape_indptr,
                 const mx_uint *input_shape_data, PredictorHandle *out);
int MXPredCreateEx(const char *symbol_json_str, const void *param_bytes, int param_size, int dev_type, int dev_id,
                   mx_uint num_input_nodes, const char **input_keys, const mx_uint *input_shape_indptr,
                   const mx_uint *input_shape_data, mx_uint num_provided_arg_dtypes,
                   const char **provided_arg_dtype_names, const int *provided_arg_dtypes, PredictorHandle *out);
int MXPredCreatePartialOut(const char *symbol_json_str, const void *param_bytes, int param_size, int dev_type,
                           int dev_id, mx_uint num_input_nodes, const char **input_keys,
                           const mx_uint *input_shape_indptr, const mx_uint *input_shape_data,
                           mx_uint num_output_nodes, const char **output_keys, PredictorHandle *out);
/* `out` has room for one predictor per thread. They share one net, so their calls wait for each other. */
int MXPredCreateMultiThread(const char *symbol_json_str, const void *param_bytes, int param_size, int dev_type,
                            int dev_id, mx_uint num_input_nodes, const char **input_keys,
                            const mx_uint *input_shape_indptr, const mx_uint *input_shape_data, int num_threads,
                            PredictorHandle *out);
int MXPredReshape(mx_uint num_input_nodes, const char **input_keys, const mx_uint *input_shape_indptr,
                  const mx_uint *input_shape_data, PredictorHandle handle, PredictorHandle *out);
int MXPredGetOutputShape(PredictorHandle handle, mx_uint index, mx_uint **shape_data, mx_uint *shape_ndim);
int MXPredGetOutputType(PredictorHandle handle, mx_uint out_index, int *out_dtype);
int MXPredSetInput(PredictorHandle handle, const char *key, const mx_float *data, mx_uint size);
int MXPredForward(PredictorHandle handle);
int MXPredPartialForward(PredictorHandle handle, int step, int *step_left);
int MXPredGetOutput(PredictorHandle handle, mx_uint index, mx_float *data, mx_uint size);
int MXPredFree(PredictorHandle handle);
int MXPredSetMonitorCallback(PredictorHandle handle, PredMonitorCallback callback, void *callback_handle,
                             int monitor_all);
int MXNDListCreate(const char *nd_file_bytes, int nd_file_size, NDListHandle *out, mx_uint *out_length);
int MXNDListGet(NDListHandle handle, mx_uint index, const char **out_key, const mx_float **out_data,
                const mx_uint **out_shape, mx_uint *out_ndim);
int MXNDListFree(NDListHandle handle);

#ifdef __cplusplus
}
#endif
#endif
"""

_SOURCE = r"""/* MXNet's C interface for prediction on top of @NAME@.h. Made by gluonjit @VERSION@. */
#include "c_predict_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "@NAME@.h"

enum { N_IN = @N_IN@, N_OUT = @N_OUT@, N_DIMS = @N_DIMS@, RANK = @RANK@ };

/* A size of a shape: factor * (size of an open dimension) + rest. */
typedef struct { int64_t factor; int dim; int64_t rest; } extent;
typedef struct { const char *name; int rank; extent shape[RANK]; } array;

static const array INPUTS[] = {@INPUTS@};
static const array OUTPUTS[] = {@OUTPUTS@};

typedef struct { @NAME@ *net; int users; pthread_mutex_t lock; } shared;
typedef struct {
    shared *net;
    int64_t sizes[N_DIMS + 1];
    float *inputs[N_IN], *outputs[N_OUT];
    mx_uint in_counts[N_IN], out_counts[N_OUT], out_shapes[N_OUT][RANK];
    int chosen[N_OUT], n_chosen;
} predictor;

static _Thread_local char last_error[512];

const char *MXGetLastError(void) { return last_error; }

static int failed(const char *function, const char *format, const char *detail) {
    int n = snprintf(last_error, sizeof last_error, "%s: ", function);
    snprintf(last_error + n, sizeof last_error - (size_t)n, format, detail);
    return -1;
}

/* FNV-1a of every step-th byte. */
static uint64_t hash(const unsigned char *data, size_t size) {
    uint64_t found = 0xcbf29ce484222325u;
    size_t step = size / 65536 ? size / 65536 : 1;
    for (size_t k = 0; k < size; k += step) found = (found ^ data[k]) * 0x100000001b3u;
    return found;
}

static void release(shared *net) {
    if (net == NULL) return;
    pthread_mutex_lock(&net->lock);
    int left = --net->users;
    pthread_mutex_unlock(&net->lock);
    if (left == 0) {
        @NAME@_free(net->net);
        pthread_mutex_destroy(&net->lock);
        free(net);
    }
}

static void destroy(predictor *h) {
    if (h == NULL) return;
    for (int k = 0; k < N_IN; k++) free(h->inputs[k]);
    for (int k = 0; k < N_OUT; k++) free(h->outputs[k]);
    release(h->net);
    free(h);
}

/* Number of elements; 0 if it does not fit. */
static mx_uint elements(const int64_t *shape, int rank) {
    uint64_t n = 1;
    for (int k = 0; k < rank; k++) {
        if (shape[k] < 1 || shape[k] > UINT32_MAX) return 0;
        n *= (uint64_t)shape[k];
        if (n > UINT32_MAX) return 0;
    }
    return (mx_uint)n;
}

/* The sizes of open dimensions by which the inputs have the given shapes. */
static int solve(const char *function, mx_uint count, const char **keys, const mx_uint *indptr, const mx_uint *data,
                 predictor *h) {
    int seen[N_IN] = {0};
    for (mx_uint k = 0; k < count; k++) {
        int i = 0;
        while (i < N_IN && strcmp(keys[k], INPUTS[i].name)) i++;
        if (i == N_IN) continue; /* such as a label, which the compiled model does not read */
        seen[i] = 1;
        if (indptr[k + 1] < indptr[k] || indptr[k + 1] - indptr[k] != (mx_uint)INPUTS[i].rank)
            return failed(function, "the shape of %s has another number of dimensions than the compiled one", keys[k]);
        for (int axis = 0; axis < INPUTS[i].rank; axis++) {
            extent e = INPUTS[i].shape[axis];
            int64_t size = data[indptr[k] + (mx_uint)axis], left = size - e.rest;
            if (e.factor == 0 ? left != 0 : left <= 0 || left % e.factor)
                return failed(function, "the shape of %s is not one that the model was compiled for", keys[k]);
            if (e.factor == 0) continue;
            if (h->sizes[e.dim] != 0 && h->sizes[e.dim] != left / e.factor)
                return failed(function, "the shape of %s does not fit the other inputs", keys[k]);
            h->sizes[e.dim] = left / e.factor;
        }
    }
    for (int i = 0; i < N_IN; i++)
        if (!seen[i]) return failed(function, "the shape of %s is missing", INPUTS[i].name);
    return 0;
}

static int allocate(const char *function, predictor *h) {
    int64_t shape[RANK];
    for (int k = 0; k < N_IN + N_OUT; k++) {
        const array *a = k < N_IN ? &INPUTS[k] : &OUTPUTS[k - N_IN];
        for (int axis = 0; axis < a->rank; axis++) {
            extent e = a->shape[axis];
            shape[axis] = (e.factor ? e.factor * h->sizes[e.dim] : 0) + e.rest;
            if (k >= N_IN) h->out_shapes[k - N_IN][axis] = (mx_uint)shape[axis];
        }
        mx_uint n = elements(shape, a->rank);
        if (n == 0) return failed(function, "%s is too large", a->name);
        float *x = calloc(n, sizeof(float));
        if (x == NULL) return failed(function, "there is not enough memory for %s", a->name);
        if (k < N_IN) h->inputs[k] = x, h->in_counts[k] = n;
        else h->outputs[k - N_IN] = x, h->out_counts[k - N_IN] = n;
    }
    return 0;
}

static int choose(const char *function, predictor *h, mx_uint count, const char **keys) {
    h->n_chosen = 0;
    if (keys == NULL)
        for (int k = 0; k < N_OUT; k++) h->chosen[h->n_chosen++] = k;
    for (mx_uint c = 0; keys != NULL && c < count; c++) {
        size_t length = strlen(keys[c]);
        int k = 0;
        while (k < N_OUT && !(strncmp(OUTPUTS[k].name, keys[c], length) == 0 &&
                              (OUTPUTS[k].name[length] == 0 || strcmp(OUTPUTS[k].name + length, "_output") == 0)))
            k++;
        if (k == N_OUT || h->n_chosen == N_OUT)
            return failed(function, "the compiled model has no output %s: build it with that one", keys[c]);
        h->chosen[h->n_chosen++] = k;
    }
    return 0;
}

static int check_files(const char *function, const char *symbol, const void *params, int size) {
    if (symbol == NULL || params == NULL || size < 0) return failed(function, "%s is null", "an argument");
    if (strlen(symbol) != @SYMBOL_SIZE@u || hash((const unsigned char *)symbol, @SYMBOL_SIZE@u) != @SYMBOL_HASH@)
        return failed(function, "the graph is another one than the library was built from%s", "");
    if (size != @PARAMS_SIZE@ || hash(params, @PARAMS_SIZE@u) != @PARAMS_HASH@)
        return failed(function, "the parameters are others than the library was built from%s", "");
    return 0;
}

static shared *open_net(const char *function) {
    const char *text = getenv("OMP_NUM_THREADS");
    long threads = text != NULL ? atol(text) : sysconf(_SC_NPROCESSORS_ONLN);
    shared *net = calloc(1, sizeof *net);
    if (net == NULL) {
        failed(function, "there is not enough memory%s", "");
        return NULL;
    }
    @NAME@_status status = @NAME@_create(threads < 1 ? 1 : threads > 256 ? 256 : (int)threads, &net->net);
    if (status != @UPPER@_OK) {
        failed(function, "%s", @NAME@_message(status));
        free(net);
        return NULL;
    }
    pthread_mutex_init(&net->lock, NULL);
    return net;
}

static predictor *make(const char *function, shared *net, mx_uint count, const char **keys, const mx_uint *indptr,
                       const mx_uint *data, mx_uint n_outputs, const char **outputs) {
    predictor *h = calloc(1, sizeof *h);
    if (h == NULL) {
        failed(function, "there is not enough memory%s", "");
        return NULL;
    }
    if (solve(function, count, keys, indptr, data, h) || allocate(function, h) ||
        choose(function, h, n_outputs, outputs)) {
        destroy(h);
        return NULL;
    }
    pthread_mutex_lock(&net->lock);
    net->users++;
    pthread_mutex_unlock(&net->lock);
    h->net = net;
    return h;
}

static int create(const char *function, const char *symbol, const void *params, int size, mx_uint count,
                  const char **keys, const mx_uint *indptr, const mx_uint *data, mx_uint n_outputs,
                  const char **outputs, int handles, PredictorHandle *out) {
    if (out == NULL || keys == NULL || indptr == NULL || data == NULL || handles < 1)
        return failed(function, "%s is null", "an argument");
    if (check_files(function, symbol, params, size)) return -1;
    shared *net = open_net(function);
    if (net == NULL) return -1;
    net->users = 1; /* until all are made */
    int made = 0;
    while (made < handles && (out[made] = make(function, net, count, keys, indptr, data, n_outputs, outputs)) != NULL)
        made++;
    if (made < handles)
        while (made > 0) destroy(out[--made]);
    release(net);
    return made == handles ? 0 : -1;
}

int MXPredCreate(const char *symbol, const void *params, int size, int dev_type, int dev_id, mx_uint count,
                 const char **keys, const mx_uint *indptr, const mx_uint *data, PredictorHandle *out) {
    (void)dev_type, (void)dev_id;
    return create("MXPredCreate", symbol, params, size, count, keys, indptr, data, 0, NULL, 1, out);
}

int MXPredCreateEx(const char *symbol, const void *params, int size, int dev_type, int dev_id, mx_uint count,
                   const char **keys, const mx_uint *indptr, const mx_uint *data, mx_uint n_types, const char **names,
                   const int *types, PredictorHandle *out) {
    (void)dev_type, (void)dev_id;
    for (mx_uint k = 0; k < n_types; k++)
        if (types[k] != 0) return failed("MXPredCreateEx", "%s is compiled for float32", names[k]);
    return create("MXPredCreateEx", symbol, params, size, count, keys, indptr, data, 0, NULL, 1, out);
}

int MXPredCreatePartialOut(const char *symbol, const void *params, int size, int dev_type, int dev_id, mx_uint count,
                           const char **keys, const mx_uint *indptr, const mx_uint *data, mx_uint n_outputs,
                           const char **outputs, PredictorHandle *out) {
    (void)dev_type, (void)dev_id;
    return create("MXPredCreatePartialOut", symbol, params, size, count, keys, indptr, data, n_outputs, outputs, 1,
                  out);
}

int MXPredCreateMultiThread(const char *symbol, const void *params, int size, int dev_type, int dev_id, mx_uint count,
                            const char **keys, const mx_uint *indptr, const mx_uint *data, int threads,
                            PredictorHandle *out) {
    (void)dev_type, (void)dev_id;
    return create("MXPredCreateMultiThread", symbol, params, size, count, keys, indptr, data, 0, NULL, threads, out);
}

int MXPredReshape(mx_uint count, const char **keys, const mx_uint *indptr, const mx_uint *data, PredictorHandle handle,
                  PredictorHandle *out) {
    if (handle == NULL || out == NULL || keys == NULL || indptr == NULL || data == NULL)
        return failed("MXPredReshape", "%s is null", "an argument");
    predictor *old = handle, *h = make("MXPredReshape", old->net, count, keys, indptr, data, 0, NULL);
    if (h == NULL) return -1;
    memcpy(h->chosen, old->chosen, sizeof h->chosen);
    h->n_chosen = old->n_chosen;
    *out = h;
    return 0;
}

static int output(const char *function, predictor *h, mx_uint index) {
    if (h == NULL) return failed(function, "%s is null", "the handle");
    if (index >= (mx_uint)h->n_chosen) return failed(function, "there is no output of that number%s", "");
    return h->chosen[index];
}

int MXPredGetOutputShape(PredictorHandle handle, mx_uint index, mx_uint **shape, mx_uint *ndim) {
    predictor *h = handle;
    int k = output("MXPredGetOutputShape", h, index);
    if (k < 0) return -1;
    *shape = h->out_shapes[k];
    *ndim = (mx_uint)OUTPUTS[k].rank;
    return 0;
}

int MXPredGetOutputType(PredictorHandle handle, mx_uint index, int *type) {
    if (output("MXPredGetOutputType", handle, index) < 0) return -1;
    *type = 0; /* float32 */
    return 0;
}

int MXPredSetInput(PredictorHandle handle, const char *key, const mx_float *data, mx_uint size) {
    predictor *h = handle;
    if (h == NULL || key == NULL || data == NULL) return failed("MXPredSetInput", "%s is null", "an argument");
    for (int k = 0; k < N_IN; k++)
        if (strcmp(key, INPUTS[k].name) == 0) {
            if (size != h->in_counts[k])
                return failed("MXPredSetInput", "%s has another number of elements", key);
            memcpy(h->inputs[k], data, size * sizeof(float));
            return 0;
        }
    return failed("MXPredSetInput", "cannot find input key %s", key);
}

int MXPredForward(PredictorHandle handle) {
    predictor *h = handle;
    if (h == NULL) return failed("MXPredForward", "%s is null", "the handle");
    @NAME@_status status = @RUN@;
    return status == @UPPER@_OK ? 0 : failed("MXPredForward", "%s", @NAME@_message(status));
}

/* The compiled model is one step. */
int MXPredPartialForward(PredictorHandle handle, int step, int *left) {
    if (left == NULL) return failed("MXPredPartialForward", "%s is null", "an argument");
    *left = 0;
    return step == 0 ? MXPredForward(handle) : 0;
}

int MXPredGetOutput(PredictorHandle handle, mx_uint index, mx_float *data, mx_uint size) {
    predictor *h = handle;
    int k = output("MXPredGetOutput", h, index);
    if (k < 0) return -1;
    if (data == NULL || size != h->out_counts[k])
        return failed("MXPredGetOutput", "%s has another number of elements", OUTPUTS[k].name);
    memcpy(data, h->outputs[k], size * sizeof(float));
    return 0;
}

int MXPredFree(PredictorHandle handle) {
    destroy(handle);
    return 0;
}

int MXPredSetMonitorCallback(PredictorHandle handle, PredMonitorCallback callback, void *data, int all) {
    (void)handle, (void)callback, (void)data, (void)all;
    return failed("MXPredSetMonitorCallback", "compiled code has no results in between to be monitored%s", "");
}

/* Files of arrays, as `nd.save` writes them: of float32, or what converts to it without loss. */

typedef struct { char *key; float *data; mx_uint shape[32], ndim; } item;
typedef struct { mx_uint count; item *items; } list;
typedef struct { const unsigned char *at, *end; } reader;

static int take(reader *r, void *to, size_t size) {
    if ((size_t)(r->end - r->at) < size) return -1;
    memcpy(to, r->at, size);
    r->at += size;
    return 0;
}

static int read_item(reader *r, item *x) {
    uint32_t magic, ndim, dim32, context[2], type;
    int64_t dim64;
    int32_t storage = 0;
    if (take(r, &magic, 4)) return -1;
    int wide = magic == 0xF993fac8u || magic == 0xF993fac9u || magic == 0xF993facau;
    if (magic != 0xF993fac8u && wide && (take(r, &storage, 4) || storage != 0)) return -1;
    if (!wide) ndim = magic;
    else if (take(r, &ndim, 4)) return -1;
    if (ndim > 32) return -1;
    uint64_t n = 1;
    for (x->ndim = 0; x->ndim < ndim; x->ndim++) {
        if (wide ? take(r, &dim64, 8) : take(r, &dim32, 4)) return -1;
        if (!wide) dim64 = dim32;
        if (dim64 < 0 || dim64 > UINT32_MAX) return -1;
        x->shape[x->ndim] = (mx_uint)dim64;
        n *= (uint64_t)dim64;
        if (n > (uint64_t)(r->end - r->at)) return -1; /* a byte each at least */
    }
    if (ndim == 0) return -1;
    if (take(r, context, 8) || take(r, &type, 4)) return -1;
    static const size_t SIZES[] = {4, 8, 0, 1, 4, 1, 8};
    if (type >= 7 || SIZES[type] == 0 || n * SIZES[type] > (uint64_t)(r->end - r->at)) return -1;
    x->data = calloc(n + 1, sizeof(float));
    if (x->data == NULL) return -1;
    for (uint64_t k = 0; k < n; k++, r->at += SIZES[type]) {
        float f; double d; int32_t i; int64_t l;
        switch (type) {
            case 0: memcpy(&f, r->at, 4); x->data[k] = f; break;
            case 1: memcpy(&d, r->at, 8); x->data[k] = (float)d; break;
            case 3: x->data[k] = (float)*r->at; break;
            case 4: memcpy(&i, r->at, 4); x->data[k] = (float)i; break;
            case 5: x->data[k] = (float)(signed char)*r->at; break;
            default: memcpy(&l, r->at, 8); x->data[k] = (float)l;
        }
    }
    return 0;
}

static int read_list(reader *r, list *found) {
    uint64_t magic, reserved, count, names, length;
    if (take(r, &magic, 8) || magic != 0x112 || take(r, &reserved, 8) || take(r, &count, 8)) return -1;
    if (count > (uint64_t)(r->end - r->at) / 4) return -1;
    found->items = calloc(count + 1, sizeof(item));
    if (found->items == NULL) return -1;
    found->count = (mx_uint)count;
    for (uint64_t k = 0; k < count; k++)
        if (read_item(r, &found->items[k])) return -1;
    if (take(r, &names, 8) || (names != 0 && names != count)) return -1;
    for (uint64_t k = 0; k < count; k++) {
        length = 0;
        if (names != 0 && (take(r, &length, 8) || length > (uint64_t)(r->end - r->at))) return -1;
        found->items[k].key = calloc(length + 1, 1);
        if (found->items[k].key == NULL || take(r, found->items[k].key, length)) return -1;
    }
    return 0;
}

int MXNDListFree(NDListHandle handle) {
    list *l = handle;
    for (mx_uint k = 0; l != NULL && l->items != NULL && k < l->count; k++) {
        free(l->items[k].key);
        free(l->items[k].data);
    }
    if (l != NULL) free(l->items);
    free(l);
    return 0;
}

int MXNDListCreate(const char *bytes, int size, NDListHandle *out, mx_uint *length) {
    if (bytes == NULL || size < 0 || out == NULL || length == NULL)
        return failed("MXNDListCreate", "%s is null", "an argument");
    list *found = calloc(1, sizeof *found);
    reader r = {(const unsigned char *)bytes, (const unsigned char *)bytes + size};
    if (found == NULL || read_list(&r, found)) {
        MXNDListFree(found);
        return failed("MXNDListCreate", "Invalid NDArray file format%s", "");
    }
    *out = found;
    *length = found->count;
    return 0;
}

int MXNDListGet(NDListHandle handle, mx_uint index, const char **key, const mx_float **data, const mx_uint **shape,
                mx_uint *ndim) {
    list *l = handle;
    if (l == NULL || index >= l->count) return failed("MXNDListGet", "there is no array of that number%s", "");
    *key = l->items[index].key;
    *data = l->items[index].data;
    *shape = l->items[index].shape;
    *ndim = l->items[index].ndim;
    return 0;
}
"""
