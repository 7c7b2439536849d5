/* The state of a run of backward: nodes that wait, sums of gradients, and nodes that lead to `inputs`. */
#include "backward.h"

#include <stdlib.h>

/* The heap, a list of tuples (-sequence, node) that Python's heapq handles as well. Python may push a key that is no
 * integer of 64 bits: `pop_node` raises an error for it. */

static long long key_at(PyObject *heap, Py_ssize_t i) {
    return PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(heap, i), 0));
}

static void swap_entries(PyObject *heap, Py_ssize_t i, Py_ssize_t k) {
    PyObject **items = PySequence_Fast_ITEMS(heap), *entry = items[i];
    items[i] = items[k], items[k] = entry;
}

static int push_node(PyObject *heap, PyObject *node) {
    PyObject *sequence = SLOT(node, Node, sequence);
    if (sequence == NULL) return PyErr_Format(PyExc_AttributeError, "a node has no sequence"), -1;
    if (!PyLong_Check(sequence)) return PyErr_Format(PyExc_TypeError, "a node's sequence is no integer"), -1;
    PyObject *key = PyNumber_Negative(sequence);
    PyObject *entry = key == NULL ? NULL : PyTuple_Pack(2, key, node);
    Py_XDECREF(key);
    if (entry == NULL || PyList_Append(heap, entry)) return Py_XDECREF(entry), -1;
    Py_DECREF(entry);
    Py_ssize_t i = PyList_GET_SIZE(heap) - 1;
    for (Py_ssize_t parent; i > 0 && key_at(heap, i) < key_at(heap, parent = (i - 1) / 2); i = parent)
        swap_entries(heap, i, parent);
    return PyList_GET_SIZE(heap) > 1 && PyErr_Occurred() ? -1 : 0;
}

/* Remove the first entry, and return its node as a new reference. */
PyObject *pop_node(PyObject *heap) {
    Py_ssize_t count = PyList_GET_SIZE(heap) - 1;
    if (count < 0) return PyErr_Format(PyExc_IndexError, "no node is left"), NULL;
    PyObject *node = Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(heap, 0), 1));
    swap_entries(heap, 0, count);
    if (PyList_SetSlice(heap, count, count + 1, NULL)) return Py_DECREF(node), NULL;
    for (Py_ssize_t i = 0, child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && key_at(heap, child + 1) < key_at(heap, child)) child++;
        if (key_at(heap, i) <= key_at(heap, child)) break;
        swap_entries(heap, i, child);
    }
    if (count > 1 && PyErr_Occurred()) Py_CLEAR(node);
    return node;
}

/* Sums of gradients: `_is_needed`, `_sums_at`, `_add`. */

/* Return 1 if the gradients of a node's results, or of a leaf, are read; 0 if not; -1 with an exception. */
int is_needed(PyObject *state, PyObject *target) {
    PyObject *reaching_nodes = SLOT(state, BackwardState, reaching_nodes);
    if (is_a(target, Node.type)) {
        if (reaching_nodes == Py_None) return 1;
        int contained = PySet_Contains(reaching_nodes, target);
        return contained ? contained : PySet_Contains(SLOT(state, BackwardState, requested_nodes), target);
    }
    if (SLOT(state, BackwardState, inputs) == Py_None) return SLOT(target, Tensor, needs_grad) == Py_True;
    PyObject *key = PyLong_FromVoidPtr(target);
    int contained = key == NULL ? -1 : PySet_Contains(SLOT(state, BackwardState, requested_leaves), key);
    Py_XDECREF(key);
    return contained;
}

static PyObject *list_of_value(Py_ssize_t count, PyObject *value) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) PyList_SET_ITEM(list, i, Py_NewRef(value));
    return list;
}

static PyObject *new_sums(Py_ssize_t count) {
    PyObject *sums = new_object(GradientSums.type);
    if (sums == NULL) return NULL;
    INIT_SLOT_STEAL(sums, GradientSums, grads, list_of_value(count, Py_None));
    INIT_SLOT_STEAL(sums, GradientSums, is_owned, list_of_value(count, Py_False));
    if (PyErr_Occurred()) Py_CLEAR(sums);
    return sums;
}

static PyObject *sums_at_node(PyObject *state, PyObject *node) {
    PyObject *node_sums = SLOT(state, BackwardState, node_sums), *recipe = SLOT(node, Node, recipe);
    PyObject *sums = PyDict_GetItemWithError(node_sums, node);
    if (sums != NULL || PyErr_Occurred()) return Py_XNewRef(sums);
    if (recipe == NULL || !Py_IS_TYPE(recipe, Recipe.type))
        return PyErr_Format(PyExc_AttributeError, "a node's recipe is no Recipe: a program has replaced it"), NULL;
    PyObject *out_metas = SLOT(recipe, Recipe, out_metas);
    if (out_metas == NULL || !PyTuple_Check(out_metas))
        return PyErr_Format(PyExc_AttributeError, "a recipe's out_metas is no tuple: a program has replaced it"), NULL;
    sums = new_sums(PyTuple_GET_SIZE(out_metas));
    if (sums == NULL) return NULL;
    if (PyDict_SetItem(node_sums, node, sums) || push_node(SLOT(state, BackwardState, heap), node)) Py_CLEAR(sums);
    return sums;
}

static PyObject *sums_at_leaf(PyObject *state, PyObject *leaf) {
    PyObject *leaves = SLOT(state, BackwardState, leaves), *key = PyLong_FromVoidPtr(leaf), *sums = NULL;
    PyObject *entry = key == NULL ? NULL : PyDict_GetItemWithError(leaves, key);
    if (entry != NULL) sums = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    else if (!PyErr_Occurred() && (sums = new_sums(1)) != NULL) {
        entry = PyTuple_Pack(2, leaf, sums);
        if (entry == NULL || PyDict_SetItem(leaves, key, entry)) Py_CLEAR(sums);
        Py_XDECREF(entry);
    }
    Py_XDECREF(key);
    return sums;
}

/* Return the GradientSums at the target of an edge, a new reference, and the index of the sum in `index`. */
PyObject *sums_at(PyObject *state, PyObject *edge, Py_ssize_t *index) {
    PyObject *target = PyTuple_GET_ITEM(edge, 0);
    PyObject *sums = is_a(target, Node.type) ? sums_at_node(state, target) : sums_at_leaf(state, target);
    *index = PyLong_AsSsize_t(PyTuple_GET_ITEM(edge, 1));
    if (sums != NULL && (*index < 0 || *index >= PyList_GET_SIZE(SLOT(sums, GradientSums, grads)))) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "an edge leads to a result that its node does not have");
        Py_CLEAR(sums);
    }
    return sums;
}

int add_to_sum(PyObject *state, PyObject *sums, Py_ssize_t index, PyObject *grad) {
    PyObject *grads = SLOT(sums, GradientSums, grads), *is_owned = SLOT(sums, GradientSums, is_owned);
    PyObject *total = PyList_GET_ITEM(grads, index), *record = SLOT(state, BackwardState, add_record);
    if (total == Py_None) return PyList_SetItem(grads, index, Py_NewRef(grad));
    int can_write = PyList_GET_ITEM(is_owned, index) == Py_True && SLOT(state, BackwardState, create_graph) != Py_True;
    can_write = can_write && is_tensor(total) && is_tensor(grad);
    if (can_write && SLOT(total, Tensor, meta) == SLOT(grad, Tensor, meta)) return add_in_place(record, total, grad);
    PyObject *operands[] = {total, grad}, *sum = call_op(record, operands, 2, empty_tuple);
    if (sum == NULL || PyList_SetItem(grads, index, sum)) return -1;
    return PyList_SetItem(is_owned, index, Py_NewRef(Py_True));
}

/* The nodes that lead to `inputs`. */

typedef struct { long long sequence; PyObject *node; } NumberedNode;

static int compare_numbers(const void *a, const void *b) {
    long long x = ((const NumberedNode *)a)->sequence, y = ((const NumberedNode *)b)->sequence;
    return (x > y) - (x < y);
}

/* Return the edges of a node, borrowed; NULL with an exception if a program has replaced them. */
static PyObject *edges_of(PyObject *node) {
    PyObject *edges = SLOT(node, Node, edges);
    int is_valid = edges != NULL && PyTuple_Check(edges);
    for (Py_ssize_t i = 0; is_valid && i < PyTuple_GET_SIZE(edges); i++) {
        PyObject *edge = PyTuple_GET_ITEM(edges, i);
        is_valid = PyTuple_Check(edge) && PyTuple_GET_SIZE(edge) == 2;
    }
    return is_valid ? edges : PyErr_Format(PyExc_TypeError, "the edges of a node are no pairs: %R", node);
}

/* Append a node to the list, unless it is in the set. */
static int visit(PyObject *nodes, PyObject *visited, PyObject *node) {
    int contained = is_a(node, Node.type) ? PySet_Contains(visited, node) : 1;
    return contained ? (contained < 0 ? -1 : 0) : PySet_Add(visited, node) || PyList_Append(nodes, node) ? -1 : 0;
}

/* Append the nodes that can be reached from those in the list. Return 0, or -1 with an exception. */
static int visit_all(PyObject *nodes, PyObject *visited) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) {
        PyObject *edges = edges_of(PyList_GET_ITEM(nodes, i));
        if (edges == NULL) return -1;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(edges); k++)
            if (visit(nodes, visited, PyTuple_GET_ITEM(PyTuple_GET_ITEM(edges, k), 0))) return -1;
    }
    return 0;
}

/* Add the nodes that lead to `inputs` to `state.reaching_nodes`; operands come before the calls that use them. */
static int add_reaching_nodes(PyObject *state, PyObject *nodes) {
    Py_ssize_t count = PyList_GET_SIZE(nodes);
    NumberedNode *order = PyMem_New(NumberedNode, count);
    if (order == NULL) return PyErr_NoMemory(), -1;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i), *number = SLOT(node, Node, sequence);
        order[i] = (NumberedNode){number == NULL ? -1 : PyLong_AsLongLong(number), node};
        failed = PyErr_Occurred() != NULL;
    }
    if (!failed) qsort(order, (size_t)count, sizeof *order, compare_numbers);
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *edges = edges_of(order[i].node);
        int leads = 0;
        for (Py_ssize_t k = 0; edges != NULL && leads == 0 && k < PyTuple_GET_SIZE(edges); k++)
            leads = is_needed(state, PyTuple_GET_ITEM(PyTuple_GET_ITEM(edges, k), 0));
        failed = edges == NULL || leads < 0 ||
                 (leads && PySet_Add(SLOT(state, BackwardState, reaching_nodes), order[i].node));
    }
    PyMem_Free(order);
    return failed ? -1 : 0;
}

/* The module's `set_reaching_nodes`. No Python code runs meanwhile: only numbers, sets and lists are allocated. */
PyObject *set_reaching_nodes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *state, *starts;
    if (!PyArg_ParseTuple(args, "O!O!", BackwardState.type, &state, &PyList_Type, &starts)) return NULL;
    PyObject *nodes = PyList_New(0), *visited = PySet_New(NULL), *reaching_nodes = PySet_New(NULL);
    int failed = nodes == NULL || visited == NULL || reaching_nodes == NULL;
    if (!failed) set_slot(&SLOT(state, BackwardState, reaching_nodes), Py_NewRef(reaching_nodes));
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(starts); i++)
        failed = visit(nodes, visited, PyList_GET_ITEM(starts, i));
    failed = failed || visit_all(nodes, visited) || add_reaching_nodes(state, nodes);
    Py_XDECREF(nodes);
    Py_XDECREF(visited);
    Py_XDECREF(reaching_nodes);
    if (failed) return NULL;
    Py_RETURN_NONE;
}
