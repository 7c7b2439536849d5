/* Tensors, views, and the nodes that a call records for backward. */
#include "native.h"

PyObject *tensor_of(PyObject *storage, PyObject *meta, PyObject *start) {  /* steals storage and start */
    PyObject *out = storage == NULL || start == NULL ? NULL : new_object(Tensor.type);
    if (out == NULL) {
        Py_XDECREF(storage);
        Py_XDECREF(start);
        return NULL;
    }
    INIT_SLOT_STEAL(out, Tensor, storage, storage);
    INIT_SLOT(out, Tensor, meta, meta);
    INIT_SLOT_STEAL(out, Tensor, start, start);
    INIT_SLOT(out, Tensor, needs_grad, Py_False);
    INIT_SLOT(out, Tensor, node, Py_None);
    INIT_SLOT(out, Tensor, output, zero);
    INIT_SLOT(out, Tensor, extra, Py_None);
    return out;
}

static PyObject *saved_of(PyObject *tensor, int is_output) {
    PyObject *saved = new_object(Saved.type), *node = SLOT(tensor, Tensor, node);
    if (saved == NULL) return NULL;
    INIT_SLOT(saved, Saved, storage, SLOT(tensor, Tensor, storage));
    INIT_SLOT(saved, Saved, meta, SLOT(tensor, Tensor, meta));
    INIT_SLOT(saved, Saved, start, SLOT(tensor, Tensor, start));
    INIT_SLOT(saved, Saved, version, SLOT(SLOT(tensor, Tensor, storage), Storage, version));
    INIT_SLOT(saved, Saved, needs_grad, SLOT(tensor, Tensor, needs_grad));
    INIT_SLOT(saved, Saved, node, is_output ? Py_None : node);
    INIT_SLOT(saved, Saved, output, SLOT(tensor, Tensor, output));
    INIT_SLOT(saved, Saved, leaf, node == Py_None && !is_output ? tensor : Py_None);
    return saved;
}

static PyObject *saved_operand(PyObject *o) { return is_a(o, Tensor.type) ? saved_of(o, 0) : Py_NewRef(o); }

static PyObject *saved_output(PyObject *tensor) { return saved_of(tensor, 1); }

static PyObject *edge_to(PyObject *operand) {
    PyObject *edge = PyTuple_New(2);  /* first: an allocation may run finalizers, which may replace the node */
    if (edge == NULL) return NULL;
    PyObject *node = SLOT(operand, Tensor, node), *output = SLOT(operand, Tensor, output);
    if (node == NULL || output == NULL) {
        Py_DECREF(edge);
        return PyErr_Format(PyExc_AttributeError, "a tensor has no attribute '%s': a program has deleted it",
                            node == NULL ? "node" : "output");
    }
    PyTuple_SET_ITEM(edge, 0, Py_NewRef(node == Py_None ? operand : node));
    PyTuple_SET_ITEM(edge, 1, Py_NewRef(node == Py_None ? zero : output));
    return edge;
}

/* Return a tuple of `function` applied to the objects at `positions`. */
static PyObject *map_positions(PyObject *positions, PyObject *const *objects, PyObject *(*function)(PyObject *)) {
    Py_ssize_t count = PyTuple_GET_SIZE(positions);
    PyObject *values = PyTuple_New(count);
    for (Py_ssize_t i = 0; values != NULL && i < count; i++) {
        PyObject *value = function(objects[index_at(positions, i)]);
        if (value == NULL) Py_CLEAR(values);
        else PyTuple_SET_ITEM(values, i, value);
    }
    return values;
}

PyObject *forward_stack = NULL;

static PyObject *node_of(PyObject *recipe, PyObject *const *operands, PyObject *const *outs, PyObject *statics) {
    PyObject *node = new_object(Node.type);
    if (node == NULL) return NULL;
    INIT_SLOT(node, Node, recipe, recipe);
    INIT_SLOT(node, Node, statics, statics);
    INIT_SLOT(node, Node, hooks, Py_None);
    INIT_SLOT(node, Node, function, Py_None);
    INIT_SLOT_STEAL(node, Node, trace, forward_stack == NULL ? Py_NewRef(Py_None) : PyObject_CallNoArgs(forward_stack));
    INIT_SLOT(node, Node, freed, Py_False);
    INIT_SLOT_STEAL(node, Node, edges, map_positions(SLOT(recipe, Recipe, edges), operands, edge_to));
    INIT_SLOT_STEAL(node, Node, saved, map_positions(SLOT(recipe, Recipe, saved_operands), operands, saved_operand));
    INIT_SLOT_STEAL(node, Node, saved_out, map_positions(SLOT(recipe, Recipe, saved_outputs), outs, saved_output));
    INIT_SLOT_STEAL(node, Node, sequence, PyIter_Next(node_numbers));
    if (PyErr_Occurred()) Py_CLEAR(node);
    return node;
}

/* Record a call's node in its outputs, if its plan has a recipe. Return 0, or -1 with an exception. */
int record_node(PyObject *plan, PyObject *const *operands, PyObject *const *outs, PyObject *statics) {
    PyObject *recipe = SLOT(plan, Plan, recipe);
    if (recipe == Py_None) return 0;
    PyObject *node = node_of(recipe, operands, outs, statics), *differentiable = SLOT(recipe, Recipe, differentiable);
    if (node == NULL) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(differentiable); i++) {
        if (PyTuple_GET_ITEM(differentiable, i) != Py_True) continue;
        set_slot(&SLOT(outs[i], Tensor, needs_grad), Py_NewRef(Py_True));
        set_slot(&SLOT(outs[i], Tensor, node), Py_NewRef(node));
        set_slot(&SLOT(outs[i], Tensor, output), PyLong_FromSsize_t(i));
    }
    Py_DECREF(node);
    return 0;
}

static PyObject *new_extra(void) {
    PyObject *extra = new_object(Extra.type);
    if (extra == NULL) return NULL;
    INIT_SLOT(extra, Extra, base, Py_None);
    INIT_SLOT(extra, Extra, seen_rewrites, zero);
    INIT_SLOT(extra, Extra, rewrites, zero);
    INIT_SLOT(extra, Extra, retains, Py_None);
    INIT_SLOT(extra, Extra, grad, Py_None);
    INIT_SLOT(extra, Extra, hooks, Py_None);
    INIT_SLOT(extra, Extra, accumulation_hooks, Py_None);
    INIT_SLOT(extra, Extra, ready_hook, Py_None);
    return extra;
}

/* Return the Extra of a new view of `source`. Allocate first: an allocation may run finalizers, which may replace the
 * base. */
static PyObject *view_extra_of(PyObject *source) {
    PyObject *view_extra = new_extra();
    if (view_extra == NULL) return NULL;
    if (SLOT(source, Tensor, extra) == Py_None) {
        PyObject *source_extra = new_extra();
        if (source_extra == NULL) return Py_DECREF(view_extra), NULL;
        set_slot(&SLOT(source, Tensor, extra), source_extra);
    }
    PyObject *base = SLOT(SLOT(source, Tensor, extra), Extra, base);
    if (base == Py_None) base = source;
    set_slot(&SLOT(view_extra, Extra, base), Py_NewRef(base));
    set_slot(&SLOT(view_extra, Extra, seen_rewrites), Py_NewRef(SLOT(SLOT(base, Tensor, extra), Extra, rewrites)));
    return view_extra;
}

/* Return the view that a plan describes, as `dispatch._view` does. */
PyObject *view_of(PyObject *plan, PyObject *const *operands, PyObject *statics) {
    PyObject *source = operands[0], *view_extra = view_extra_of(source);
    if (view_extra == NULL) return NULL;
    PyObject *layout = PyTuple_GET_ITEM(PyTuple_GET_ITEM(SLOT(plan, Plan, outputs), 0), 0);
    PyObject *start = PyNumber_Add(SLOT(source, Tensor, start), SLOT(plan, Plan, view));
    PyObject *out = tensor_of(Py_NewRef(SLOT(source, Tensor, storage)), layout, start);
    if (out == NULL) return Py_DECREF(view_extra), NULL;
    set_slot(&SLOT(out, Tensor, extra), view_extra);
    PyObject *recipe = SLOT(plan, Plan, recipe);
    if (recipe != Py_None) {
        PyObject *node = node_of(recipe, operands, &out, statics);
        if (node == NULL) return Py_DECREF(out), NULL;
        set_slot(&SLOT(out, Tensor, node), node);
        set_slot(&SLOT(out, Tensor, needs_grad), Py_NewRef(Py_True));
    }
    return out;
}
