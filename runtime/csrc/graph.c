/* Tensors, views of them, and what a call leaves behind for backward. */
#include "native.h"

PyObject *tensor_of(PyObject *storage, PyObject *meta, PyObject *start) {  /* takes storage and start over */
    PyObject *out = storage == NULL || start == NULL ? NULL : made(Tensor.type);
    if (out == NULL) {
        Py_XDECREF(storage);
        Py_XDECREF(start);
        return NULL;
    }
    PUT_OWNED(out, Tensor, storage, storage);
    PUT(out, Tensor, meta, meta);
    PUT_OWNED(out, Tensor, start, start);
    PUT(out, Tensor, needs, Py_False);
    PUT(out, Tensor, node, Py_None);
    PUT(out, Tensor, output, zero);
    PUT(out, Tensor, extra, Py_None);
    return out;
}

static PyObject *saved_of(PyObject *tensor, int is_output) {
    PyObject *saved = made(Saved.type), *node = AT(tensor, Tensor, node);
    if (saved == NULL) return NULL;
    PUT(saved, Saved, storage, AT(tensor, Tensor, storage));
    PUT(saved, Saved, meta, AT(tensor, Tensor, meta));
    PUT(saved, Saved, start, AT(tensor, Tensor, start));
    PUT(saved, Saved, version, AT(AT(tensor, Tensor, storage), Storage, version));
    PUT(saved, Saved, needs, AT(tensor, Tensor, needs));
    PUT(saved, Saved, node, is_output ? Py_None : node);
    PUT(saved, Saved, output, AT(tensor, Tensor, output));
    PUT(saved, Saved, leaf, node == Py_None && !is_output ? tensor : Py_None);
    return saved;
}

static PyObject *saved_operand(PyObject *o) { return is_a(o, Tensor.type) ? saved_of(o, 0) : Py_NewRef(o); }

static PyObject *saved_output(PyObject *tensor) { return saved_of(tensor, 1); }

static PyObject *edge_to(PyObject *operand) {
    PyObject *node = AT(operand, Tensor, node);
    return node == Py_None ? PyTuple_Pack(2, operand, zero) : PyTuple_Pack(2, node, AT(operand, Tensor, output));
}

/* A tuple of what `make` makes of the objects at `places`. */
static PyObject *each(PyObject *places, PyObject *const *objects, PyObject *(*make)(PyObject *)) {
    Py_ssize_t count = PyTuple_GET_SIZE(places);
    PyObject *found = PyTuple_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *value = make(objects[number_at(places, i)]);
        if (value == NULL) Py_CLEAR(found);
        else PyTuple_SET_ITEM(found, i, value);
    }
    return found;
}

static PyObject *node_of(PyObject *recipe, PyObject *const *operands, PyObject *const *outs, PyObject *statics) {
    PyObject *node = made(Node.type);
    if (node == NULL) return NULL;
    PUT(node, Node, recipe, recipe);
    PUT(node, Node, statics, statics);
    PUT(node, Node, hooks, Py_None);
    PUT(node, Node, function, Py_None);
    PUT(node, Node, trace, Py_None);
    PUT(node, Node, freed, Py_False);
    PUT_OWNED(node, Node, edges, each(AT(recipe, Recipe, edges), operands, edge_to));
    PUT_OWNED(node, Node, saved, each(AT(recipe, Recipe, saved_operands), operands, saved_operand));
    PUT_OWNED(node, Node, saved_out, each(AT(recipe, Recipe, saved_outputs), outs, saved_output));
    PUT_OWNED(node, Node, sequence, PyIter_Next(numbering));
    if (PyErr_Occurred()) Py_CLEAR(node);
    return node;
}

/* Make a call's results remember it, if its plan has a recipe: 0, or -1 with an exception. */
int recorded(PyObject *plan, PyObject *const *operands, PyObject *const *outs, PyObject *statics) {
    PyObject *recipe = AT(plan, Plan, recipe);
    if (recipe == Py_None) return 0;
    PyObject *node = node_of(recipe, operands, outs, statics), *differentiable = AT(recipe, Recipe, differentiable);
    if (node == NULL) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(differentiable); i++) {
        if (PyTuple_GET_ITEM(differentiable, i) != Py_True) continue;
        change(&AT(outs[i], Tensor, needs), Py_NewRef(Py_True));
        change(&AT(outs[i], Tensor, node), Py_NewRef(node));
        change(&AT(outs[i], Tensor, output), PyLong_FromSsize_t(i));
    }
    Py_DECREF(node);
    return 0;
}

static PyObject *extra_of(PyObject *base, PyObject *seen) {
    PyObject *extra = made(Extra.type);
    if (extra == NULL) return NULL;
    PUT(extra, Extra, base, base);
    PUT(extra, Extra, seen, seen);
    PUT(extra, Extra, rewrites, zero);
    PUT(extra, Extra, retains, Py_None);
    PUT(extra, Extra, grad, Py_None);
    PUT(extra, Extra, hooks, Py_None);
    PUT(extra, Extra, stored, Py_None);
    return extra;
}

/* `dispatch._view` */
PyObject *view_of(PyObject *plan, PyObject *const *operands, PyObject *statics) {
    PyObject *source = operands[0], *extra = AT(source, Tensor, extra);
    PyObject *layout = PyTuple_GET_ITEM(PyTuple_GET_ITEM(AT(plan, Plan, outputs), 0), 0);
    if (extra == Py_None) {
        if ((extra = extra_of(Py_None, zero)) == NULL) return NULL;
        change(&AT(source, Tensor, extra), extra);
    }
    PyObject *base = AT(extra, Extra, base) == Py_None ? source : AT(extra, Extra, base);
    PyObject *own = extra_of(base, AT(AT(base, Tensor, extra), Extra, rewrites));
    if (own == NULL) return NULL;
    PyObject *start = PyNumber_Add(AT(source, Tensor, start), AT(plan, Plan, view));
    PyObject *out = tensor_of(Py_NewRef(AT(source, Tensor, storage)), layout, start);
    if (out == NULL) return Py_DECREF(own), NULL;
    change(&AT(out, Tensor, extra), own);
    PyObject *recipe = AT(plan, Plan, recipe);
    if (recipe != Py_None) {
        PyObject *node = node_of(recipe, operands, &out, statics);
        if (node == NULL) return Py_DECREF(out), NULL;
        change(&AT(out, Tensor, node), node);
        change(&AT(out, Tensor, needs), Py_NewRef(Py_True));
    }
    return out;
}
