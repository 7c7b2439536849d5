/* What the C files of backward share: backward.c (a step), gradient_rules.c and gradient_sums.c. */
#ifndef WEFTGRAD_BACKWARD_H
#define WEFTGRAD_BACKWARD_H

#include "native.h"

enum { MAX_VALUES = 64 };            /* saved tensors and incoming gradients of a node */
enum { MAX_EDGES = MAX_BUFFERS };    /* of a node; at most the bits of `Step.needed` */
enum { MAX_SOURCES = MAX_BUFFERS };  /* operands of a rule */

typedef struct {
    PyObject *state, *node;
    /* Of the node: owned, as Python code may replace them meanwhile. `applications` is a tuple of Applications. */
    PyObject *recipe, *edges, *statics, *applications;
    PyObject *sums;                          /* the node's GradientSums, owned */
    PyObject *values[MAX_VALUES];            /* owned: saved operands, saved results, incoming gradients */
    Py_ssize_t operand_count, value_count;   /* of `values`: saved operands, all */
    PyObject *shared_record, *shared_result; /* the last op that computed the gradients of several operands */
    unsigned long long needed;               /* bit mask of the edges whose gradient is read */
} Step;

static inline int is_tensor(PyObject *o) { return o != NULL && is_a(o, Tensor.type); }

/* Return 1 if an object is a tensor whose layout C can read. A program may delete `meta`, or override it. */
static inline int is_gradient(PyObject *o) {
    return is_tensor(o) && SLOT(o, Tensor, meta) != NULL && Py_IS_TYPE(SLOT(o, Tensor, meta), Meta.type);
}

static inline int are_equal(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    int outcome = PyObject_RichCompareBool(a, b, Py_EQ);
    if (outcome < 0) PyErr_Clear();
    return outcome == 1;
}

static inline int is_contiguous(PyObject *tensor) {
    return SLOT(SLOT(tensor, Tensor, meta), Meta, contiguous) == Py_True;
}

/* gradient_rules.c */
PyObject *call_op(PyObject *record, PyObject *const *operands, Py_ssize_t count, PyObject *statics);
PyObject *call_with_static(PyObject *record, PyObject *tensor, PyObject *value);
int write_into(PyObject *record, PyObject *operands, PyObject *statics, PyObject *target, PyObject *in_place);
int add_in_place(PyObject *record, PyObject *total, PyObject *grad);
PyObject *apply_rule(Step *step, PyObject *application);
void set_dense_layout(PyObject *application, PyObject *tensor);

/* gradient_sums.c */
PyObject *pop_node(PyObject *heap);
int is_needed(PyObject *state, PyObject *target);
PyObject *sums_at(PyObject *state, PyObject *edge, Py_ssize_t *index);
int add_to_sum(PyObject *state, PyObject *sums, Py_ssize_t index, PyObject *grad);

#endif
