/* A step of backward: the rules of one node, and the sums of gradients at the nodes and leaves that its edges lead to.
 *
 * Everything that Python code might have to see is left to `_BackwardPass.step`: hooks, functions, requested nodes,
 * anomaly mode, errors. `is_simple`, `process` and, except for slices, `read_values` decide that before anything is
 * computed. Of slices, Python's `add_to_part` adds gradients without elements, and the first at a base of unknown
 * layout. */
#include "backward.h"

static int is_tuple(PyObject *o) { return o != NULL && PyTuple_Check(o); }

static int is_tuple_of(PyObject *o, Py_ssize_t count) { return is_tuple(o) && PyTuple_GET_SIZE(o) == count; }

/* Return 1 if a saved value can be read, 0 if Python has to: for a tensor that was written since, and for those that
 * checkpoints compute again. */
static int is_current(PyObject *value) {
    if (!Py_IS_TYPE(value, Saved.type)) return !is_a(value, Saved.type);
    PyObject *storage = SLOT(value, Saved, storage), *version = SLOT(value, Saved, version);
    PyObject *leaf = SLOT(value, Saved, leaf);
    if (storage == NULL || version == NULL || leaf == NULL || !Py_IS_TYPE(storage, Storage.type)) return 0;
    PyObject *current_version = SLOT(storage, Storage, version);
    if (current_version == NULL || !are_equal(current_version, version)) return 0;
    if (leaf != Py_None) return is_tensor(leaf);
    PyObject *meta = SLOT(value, Saved, meta), *start = SLOT(value, Saved, start), *node = SLOT(value, Saved, node);
    PyObject *needs_grad = SLOT(value, Saved, needs_grad), *output = SLOT(value, Saved, output);
    if (meta == NULL || !Py_IS_TYPE(meta, Meta.type) || start == NULL || !PyLong_Check(start)) return 0;
    if (node == NULL || (node != Py_None && !is_a(node, Node.type))) return 0;
    return (needs_grad == Py_True || needs_grad == Py_False) && output != NULL && PyLong_Check(output);
}

/* Return a saved tensor with its history, as `Saved.unpack` does; results get the history of `node`. */
static PyObject *unpack(PyObject *value, PyObject *node, PyObject *output) {
    if (!Py_IS_TYPE(value, Saved.type)) return Py_NewRef(value);
    if (SLOT(value, Saved, leaf) != Py_None) return Py_NewRef(SLOT(value, Saved, leaf));
    PyObject *tensor = tensor_of(Py_NewRef(SLOT(value, Saved, storage)), SLOT(value, Saved, meta),
                                 Py_XNewRef(SLOT(value, Saved, start)));
    if (tensor == NULL) return NULL;
    set_slot(&SLOT(tensor, Tensor, needs_grad), Py_NewRef(node ? Py_True : SLOT(value, Saved, needs_grad)));
    set_slot(&SLOT(tensor, Tensor, node), Py_NewRef(node ? node : SLOT(value, Saved, node)));
    set_slot(&SLOT(tensor, Tensor, output), Py_NewRef(node ? output : SLOT(value, Saved, output)));
    return tensor;
}

/* Set `needed`. Return 1 if C can pass gradients along a node's edges, 0 if Python has to, -1 with an exception. */
static int read_edges(Step *step) {
    Py_ssize_t count = PyTuple_GET_SIZE(step->applications);
    if (!is_tuple_of(step->edges, count) || count > MAX_EDGES) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(step->applications, i), Application.type)) return 0;
        PyObject *edge = PyTuple_GET_ITEM(step->edges, i);
        if (!is_tuple_of(edge, 2) || !PyLong_Check(PyTuple_GET_ITEM(edge, 1))) return 0;
        PyObject *target = PyTuple_GET_ITEM(edge, 0);
        if (!is_a(target, Node.type) && !is_tensor(target)) return 0;
        int needed = is_needed(step->state, target);
        if (needed < 0) return -1;
        if (needed) step->needed |= 1ull << i;
    }
    return 1;
}

/* Return 1 if C can apply the rules of all needed edges, 0 if Python has to. */
static int has_simple_rules(Step *step) {
    PyObject *applications = step->applications;
    PyObject *grads = SLOT(step->sums, GradientSums, grads);
    Py_ssize_t first_grad = step->value_count - PyList_GET_SIZE(grads);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(applications); i++) {
        if (!(step->needed >> i & 1)) continue;
        PyObject *sources = SLOT(PyTuple_GET_ITEM(applications, i), Application, sources);
        if (sources == NULL || !PyTuple_Check(sources) || PyTuple_GET_SIZE(sources) > MAX_SOURCES) return 0;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(sources); k++) {
            Py_ssize_t source = index_at(sources, k);
            if (source < 0 || source > step->value_count) return PyErr_Clear(), 0;
            int is_grad = first_grad <= source && source < step->value_count;
            if (is_grad && !is_gradient(PyList_GET_ITEM(grads, source - first_grad))) return 0;
        }
    }
    return 1;
}

/* Fill `values` with the saved operands, the saved results and the incoming gradients. Return 1, 0 if Python has to
 * read them or apply a rule, -1 with an exception. */
static int fill_values(Step *step, PyObject *saved, PyObject *saved_out) {
    PyObject *outputs = SLOT(step->recipe, Recipe, saved_outputs), *grads = SLOT(step->sums, GradientSums, grads);
    PyObject *positions = SLOT(step->recipe, Recipe, saved_operands);
    if (!is_tuple(positions) || !is_tuple(outputs)) return 0;
    Py_ssize_t operand_count = PyTuple_GET_SIZE(positions);
    Py_ssize_t result_count = PyTuple_GET_SIZE(outputs), grad_count = PyList_GET_SIZE(grads);
    if (!is_tuple_of(SLOT(step->recipe, Recipe, seeds), grad_count)) return 0;
    if (!is_tuple_of(saved, operand_count) || !is_tuple_of(saved_out, result_count)) return 0;
    if (operand_count + result_count + grad_count > MAX_VALUES) return 0;
    step->operand_count = operand_count, step->value_count = operand_count + result_count + grad_count;
    if (!has_simple_rules(step)) return 0;
    for (Py_ssize_t i = 0; i < operand_count; i++)
        if (!is_current(PyTuple_GET_ITEM(saved, i))) return 0;
    for (Py_ssize_t i = 0; i < result_count; i++)
        if (!is_current(PyTuple_GET_ITEM(saved_out, i))) return 0;
    PyObject **values = step->values;
    for (Py_ssize_t i = 0; i < operand_count; i++)
        if ((values[i] = unpack(PyTuple_GET_ITEM(saved, i), NULL, NULL)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < result_count; i++) {
        PyObject *value = PyTuple_GET_ITEM(saved_out, i);
        values[operand_count + i] = unpack(value, step->node, PyTuple_GET_ITEM(outputs, i));
        if (values[operand_count + i] == NULL) return -1;
    }
    for (Py_ssize_t i = 0; i < grad_count; i++)
        values[operand_count + result_count + i] = Py_NewRef(PyList_GET_ITEM(grads, i));
    return 1;
}

static int read_values(Step *step) {
    PyObject *saved = Py_XNewRef(SLOT(step->node, Node, saved));
    PyObject *saved_out = Py_XNewRef(SLOT(step->node, Node, saved_out));
    int outcome = fill_values(step, saved, saved_out);
    Py_XDECREF(saved);
    Py_XDECREF(saved_out);
    return outcome;
}

static void release_values(Step *step) {
    for (Py_ssize_t i = 0; i < step->value_count; i++) Py_CLEAR(step->values[i]);
    Py_CLEAR(step->shared_result);
}

/* Apply the rules of a node, and pass the gradients on. Return 1, 0 if Python has to do it, -1 with an exception. */
static int pass_gradients(Step *step) {
    PyObject *applications = step->applications, *gradients[MAX_EDGES] = {NULL};
    Py_ssize_t count = PyTuple_GET_SIZE(applications);
    int outcome = read_values(step);
    for (Py_ssize_t i = 0; outcome == 1 && i < count; i++)
        if (step->needed >> i & 1 && (gradients[i] = apply_rule(step, PyTuple_GET_ITEM(applications, i))) == NULL)
            outcome = -1;
    release_values(step);
    for (Py_ssize_t i = 0; outcome == 1 && i < count; i++) {
        PyObject *edge = PyTuple_GET_ITEM(step->edges, i);
        Py_ssize_t index;
        if (gradients[i] == NULL) continue;
        if (gradients[i] == Py_None) outcome = PyList_Append(SLOT(step->state, BackwardState, zero_edges), edge) ? -1 : 1;
        else {
            PyObject *sums = sums_at(step->state, edge, &index);
            if (sums == NULL || add_to_sum(step->state, sums, index, gradients[i])) outcome = -1;
            Py_XDECREF(sums);
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(gradients[i]);
    return outcome;
}

/* Slices: `add_to_part`. */

/* Return the sum at `index` as a tensor that only `sums` uses: an existing one, a copy of it, or zeros of `layout`.
 * Return a borrowed reference, or NULL with an exception. */
static PyObject *owned_total(PyObject *state, PyObject *sums, Py_ssize_t index, PyObject *layout) {
    PyObject *grads = SLOT(sums, GradientSums, grads), *is_owned = SLOT(sums, GradientSums, is_owned);
    PyObject *total = PyList_GET_ITEM(grads, index);
    if (PyList_GET_ITEM(is_owned, index) == Py_True) return total;
    if (total != Py_None) total = call_with_static(SLOT(state, BackwardState, copy_record), total, Py_None);
    else if ((total = empty(NULL, &layout, 1, NULL)) != NULL) {
        PyObject *operands = Py_BuildValue("(Od)", total, 0.0);
        if (write_into(SLOT(state, BackwardState, fill_record), operands, Py_NewRef(empty_tuple), total, Py_False))
            Py_CLEAR(total);
    }
    if (total == NULL || PyList_SetItem(grads, index, total)) return NULL;
    return PyList_SetItem(is_owned, index, Py_NewRef(Py_True)) ? NULL : total;
}

/* Return the part of `total` that a slice covers, as a view of another tensor: `total` must not become a base. */
static PyObject *part_of(Step *step, PyObject *total) {
    if (!is_gradient(total)) return PyErr_Format(PyExc_AttributeError, "a gradient is no tensor with a layout"), NULL;
    PyObject *unshared = tensor_of(Py_NewRef(SLOT(total, Tensor, storage)), SLOT(total, Tensor, meta),
                                   Py_NewRef(SLOT(total, Tensor, start)));
    PyObject *record = SLOT(step->recipe, Recipe, record);
    PyObject *part = unshared == NULL ? NULL : call_op(record, &unshared, 1, step->statics);
    Py_XDECREF(unshared);
    return part;
}

/* Add the gradient of a slice to the part of the base's sum that it covers. Return 0, or -1 with an exception. */
static int add_to_part(Step *step, PyObject *sums, Py_ssize_t index, PyObject *grad) {
    PyObject *application = PyTuple_GET_ITEM(step->applications, 0), *state = step->state;
    PyObject *layout = SLOT(application, Application, dense_layout), *grads = SLOT(sums, GradientSums, grads);
    int has_gradient = PyList_GET_ITEM(grads, index) != Py_None;
    int has_elements = PyObject_IsTrue(SLOT(SLOT(grad, Tensor, meta), Meta, numel));
    /* Python allocates the first sum; its layout is cached for the next ones. It also handles empty gradients. */
    if (!has_elements || (!has_gradient && layout == Py_None)) {
        PyObject *output = PyTuple_GET_ITEM(PyTuple_GET_ITEM(step->edges, 0), 1);
        PyObject *result = PyObject_CallMethodObjArgs(state, s_add_to_part, sums, output, step->node, grad, NULL);
        if (result == NULL) return -1;
        Py_DECREF(result);
        if (!has_gradient && has_elements) set_dense_layout(application, PyList_GET_ITEM(grads, index));
        return 0;
    }
    PyObject *total = owned_total(state, sums, index, layout), *part = total == NULL ? NULL : part_of(step, total);
    if (part == NULL) return -1;
    int failed = has_gradient ? add_in_place(SLOT(state, BackwardState, add_record), part, grad)
                              : write_into(SLOT(state, BackwardState, copy_record), PyTuple_Pack(1, grad),
                                           PyTuple_Pack(1, Py_None), part, Py_True);
    Py_DECREF(part);
    return failed;
}

/* Pass on the gradient of a slice. Return 1, or -1 with an exception. */
static int pass_part(Step *step) {
    Py_ssize_t index;
    if (!step->needed) return 1;
    PyObject *sums = sums_at(step->state, PyTuple_GET_ITEM(step->edges, 0), &index);
    if (sums == NULL) return -1;
    int failed = add_to_part(step, sums, index, PyList_GET_ITEM(SLOT(step->sums, GradientSums, grads), 0));
    Py_DECREF(sums);
    return failed ? -1 : 1;
}

/* Set the step's fields. Return 1 if C can process the node, 0 if Python has to, -1 with an exception. */
static int is_simple(Step *step) {
    PyObject *node = step->node, *state = step->state, *recipe = SLOT(node, Node, recipe);
    PyObject *requested_nodes = SLOT(state, BackwardState, requested_nodes);
    PyObject *reaching_nodes = SLOT(state, BackwardState, reaching_nodes);
    if (forward_stack != NULL) return 0;  /* anomaly mode */
    if (!Py_IS_TYPE(node, Node.type) || recipe == NULL || !Py_IS_TYPE(recipe, Recipe.type)) return 0;
    if (SLOT(node, Node, hooks) != Py_None || SLOT(node, Node, function) != Py_None ||
        SLOT(node, Node, freed) != Py_False || SLOT(node, Node, statics) == NULL)
        return 0;
    if (PySet_GET_SIZE(requested_nodes) && PySet_Contains(requested_nodes, node)) return PyErr_Occurred() ? -1 : 0;
    if (reaching_nodes != Py_None && PySet_Contains(reaching_nodes, node) != 1) return PyErr_Occurred() ? -1 : 0;
    PyObject *sums = PyDict_GetItemWithError(SLOT(state, BackwardState, node_sums), node);
    if (sums == NULL) return PyErr_Occurred() ? -1 : 0;
    step->sums = Py_NewRef(sums), step->recipe = Py_NewRef(recipe);
    step->edges = Py_XNewRef(SLOT(node, Node, edges)), step->statics = Py_NewRef(SLOT(node, Node, statics));
    if (!is_tuple(SLOT(recipe, Recipe, applications))) return 0;
    step->applications = Py_NewRef(SLOT(recipe, Recipe, applications));
    return read_edges(step);
}

/* Drop a node's saved tensors, as `Node.release` does. Return 0, or -1 with an exception. */
static int release_saved(PyObject *node) {
    PyObject *saved = SLOT(node, Node, saved), *saved_out = SLOT(node, Node, saved_out);
    if (!is_tuple(saved) || !is_tuple(saved_out)) {
        PyObject *result = PyObject_CallMethodNoArgs(node, s_release);
        Py_XDECREF(result);
        return result == NULL ? -1 : 0;
    }
    if (!(PyTuple_GET_SIZE(saved) || PyTuple_GET_SIZE(saved_out))) return 0;
    set_slot(&SLOT(node, Node, freed), Py_NewRef(Py_True));
    set_slot(&SLOT(node, Node, saved), Py_NewRef(empty_tuple));
    set_slot(&SLOT(node, Node, saved_out), Py_NewRef(empty_tuple));
    return 0;
}

/* Pass on the gradients of a simple node. Return 1, 0 if Python has to do it, -1 with an exception. */
static int process(Step *step) {
    PyObject *state = step->state;
    if (SLOT(step->recipe, Recipe, is_partial_view) != Py_True || SLOT(state, BackwardState, create_graph) == Py_True)
        return pass_gradients(step);
    PyObject *grads = SLOT(step->sums, GradientSums, grads);
    if (PyTuple_GET_SIZE(step->applications) != 1 || PyList_GET_SIZE(grads) != 1) return 0;
    return is_gradient(PyList_GET_ITEM(grads, 0)) ? pass_part(step) : 0;
}

/* Process a node. Return 1, 0 if Python has to do it, -1 with an exception. */
static int try_step(PyObject *state, PyObject *node) {
    Step step = {.state = state, .node = node};
    int outcome = is_simple(&step);
    if (outcome == 1) outcome = process(&step);
    if (outcome == 1 && PyDict_DelItem(SLOT(state, BackwardState, node_sums), node)) outcome = -1;
    if (outcome == 1 && SLOT(state, BackwardState, retain_graph) != Py_True && release_saved(node)) outcome = -1;
    Py_XDECREF(step.sums);
    Py_XDECREF(step.recipe);
    Py_XDECREF(step.edges);
    Py_XDECREF(step.statics);
    Py_XDECREF(step.applications);
    return outcome;
}

PyObject *advance(PyObject *Py_UNUSED(module), PyObject *state) {
    if (!is_a(state, BackwardState.type)) return PyErr_Format(PyExc_TypeError, "not a BackwardState: %R", state);
    PyObject *node = pop_node(SLOT(state, BackwardState, heap)), *result = NULL;
    if (node == NULL) return NULL;
    int outcome = try_step(state, node);
    if (outcome == 0) result = PyObject_CallMethodOneArg(state, s_step, node);
    else if (outcome == 1) result = Py_NewRef(Py_None);
    Py_DECREF(node);
    return result;
}
