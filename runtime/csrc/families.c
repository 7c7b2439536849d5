/* Plan calls with sizes that are seen for the first time, by plan families: the common case of `plan_families.Search`
 * and of `Plan.refill`. */
#include "native.h"

enum { MAX_LAYOUTS = 2 * MAX_BUFFERS };

/* From `plan_families`, `plans`, `context` and `device`; NULL before `bind_families`. */
static PyObject *context_module, *signature_of, *above_one, *below_zero, *has_settled, *drop_oldest;
static PyObject *python_meta, *recent_metas;
static Py_ssize_t plans_between_checks;

PyObject *bind_families(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[8];
    PyObject **variables[] = {&context_module, &signature_of, &above_one, &below_zero, &has_settled, &drop_oldest,
                              &python_meta, &recent_metas};
    if (!PyArg_ParseTuple(args, "OOOOOOOO!n", objects, objects + 1, objects + 2, objects + 3, objects + 4,
                          objects + 5, objects + 6, &PyDict_Type, objects + 7, &plans_between_checks))
        return NULL;
    for (int i = 0; i < 8; i++) {
        PyObject *previous = *variables[i];
        *variables[i] = Py_NewRef(objects[i]);
        Py_XDECREF(previous);
    }
    Py_RETURN_NONE;
}

/* Return the interned layout, as `device.meta` does. */
PyObject *layout_of(PyObject *dtype, PyObject *shape, PyObject *strides, PyObject *device) {
    PyObject *key = PyTuple_Pack(4, dtype, shape, strides, device);
    if (key == NULL) return NULL;
    PyObject *layout = Py_XNewRef(PyDict_GetItemWithError(recent_metas, key));
    Py_DECREF(key);
    if (layout != NULL || PyErr_Occurred()) return layout;
    return PyObject_CallFunctionObjArgs(python_meta, dtype, shape, strides, device, NULL);
}

/* A call whose lineage is searched. */
typedef struct {
    PyObject *layouts[MAX_LAYOUTS];  /* the distinct ones, borrowed from the call */
    int64_t sizes[MAX_STATIC_SIZES];  /* those among the static arguments of a view */
    int layout_count, size_count;
} Search;

/* Return a static argument with its sizes replaced, as `plan_families._map_sizes` does; NULL without an exception if
 * there are too many sizes, or too large ones. */
static PyObject *map_sizes(Search *search, PyObject *value) {
    if (PyTuple_Check(value)) {
        Py_ssize_t count = PyTuple_GET_SIZE(value);
        PyObject *mapped = PyTuple_New(count);
        for (Py_ssize_t i = 0; mapped != NULL && i < count; i++) {
            PyObject *item = map_sizes(search, PyTuple_GET_ITEM(value, i));
            if (item == NULL) Py_CLEAR(mapped);
            else PyTuple_SET_ITEM(mapped, i, item);
        }
        return mapped;
    }
    if (!PyLong_CheckExact(value)) return Py_NewRef(value);
    int overflow;
    int64_t size = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow && -1 <= size && size <= 1) return Py_NewRef(value);
    if (overflow || search->size_count == MAX_STATIC_SIZES) return NULL;
    search->sizes[search->size_count++] = size;
    return Py_NewRef(size > 0 ? above_one : below_zero);
}

/* Return the static arguments of a view with their sizes replaced, except for dimensions. */
static PyObject *map_statics(Search *search, PyObject *record, PyObject *statics) {
    PyObject *names = SLOT(record, OpRecord, statics);
    Py_ssize_t count = PyTuple_GET_SIZE(statics), name_count = PyTuple_GET_SIZE(names);
    if (name_count > 0 && name_count < count) count = name_count;
    PyObject *mapped = PyTuple_New(count);
    for (Py_ssize_t i = 0; mapped != NULL && i < count; i++) {
        PyObject *value = PyTuple_GET_ITEM(statics, i);
        int is_dimension = name_count > 0 && strncmp(PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i)), "dim", 3) == 0;
        PyObject *item = is_dimension ? Py_NewRef(value) : map_sizes(search, value);
        if (item == NULL) Py_CLEAR(mapped);
        else PyTuple_SET_ITEM(mapped, i, item);
    }
    return mapped;
}

/* Return what an operand adds to the key of its lineage: the position of an equal layout, a layout's signature, the
 * type of a number, or None. NULL without an exception for other types, which Python converts or rejects. */
static PyObject *lineage_key_part(Search *search, PyObject *operand) {
    if (!Py_IS_TYPE(operand, Meta.type)) {
        int is_number = operand == (PyObject *)&PyFloat_Type || operand == (PyObject *)&PyLong_Type ||
                        operand == (PyObject *)&PyBool_Type;
        return is_number || operand == Py_None ? Py_NewRef(operand) : NULL;
    }
    for (int i = 0; i < search->layout_count; i++)
        if (search->layouts[i] == operand) return PyLong_FromLong(i);
    if (search->layout_count == MAX_LAYOUTS) return NULL;
    search->layouts[search->layout_count++] = operand;
    PyObject *signature = SLOT(operand, Meta, signature);
    if (signature != NULL && signature != Py_None) return Py_NewRef(signature);
    return PyObject_CallOneArg(signature_of, operand);
}

/* Return a call's lineage; NULL without an exception if there is none. */
static PyObject *lineage_of(Search *search, PyObject *record, PyObject *grad_mask, List operands, PyObject *into,
                            PyObject *statics) {
    Py_ssize_t into_count = into == NULL ? 0 : PyTuple_GET_SIZE(into), last = operands.count + into_count + 3;
    PyObject *lineage = NULL, *key = PyTuple_New(last + 1);
    if (key == NULL) return NULL;
    PyTuple_SET_ITEM(key, 0, Py_NewRef(record));
    PyTuple_SET_ITEM(key, 1, Py_NewRef(grad_mask));
    PyObject *count = PyLong_FromSsize_t(operands.count);
    if (count == NULL) goto done;
    PyTuple_SET_ITEM(key, 2, count);
    for (Py_ssize_t i = 0; i < operands.count + into_count; i++) {
        PyObject *operand = i < operands.count ? operands.items[i] : PyTuple_GET_ITEM(into, i - operands.count);
        PyObject *part = lineage_key_part(search, operand);
        if (part == NULL) goto done;
        PyTuple_SET_ITEM(key, i + 3, part);
    }
    int is_view = PyUnicode_CompareWithASCIIString(SLOT(record, OpRecord, kind), "view") == 0;
    PyObject *mapped = is_view ? map_statics(search, record, statics) : Py_NewRef(statics);
    if (mapped == NULL) goto done;
    PyTuple_SET_ITEM(key, last, mapped);
    PyObject *lineages = PyObject_GetAttr(context_module, s_lineages);
    if (lineages == NULL) goto done;
    lineage = Py_XNewRef(PyDict_GetItemWithError(lineages, key));
    Py_DECREF(lineages);
done:
    Py_DECREF(key);
    return lineage;
}

/* Return (layout, bytes) of each output; NULL without an exception if they are no tuple of layouts. */
static PyObject *with_bytes(PyObject *layouts) {
    if (!PyTuple_Check(layouts)) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(layouts); i++)
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(layouts, i), Meta.type)) return NULL;
    PyObject *outputs = PyTuple_New(PyTuple_GET_SIZE(layouts));
    for (Py_ssize_t i = 0; outputs != NULL && i < PyTuple_GET_SIZE(layouts); i++) {
        PyObject *layout = PyTuple_GET_ITEM(layouts, i), *pair = PyTuple_Pack(2, layout, SLOT(layout, Meta, nbytes));
        if (pair == NULL) Py_CLEAR(outputs);
        else PyTuple_SET_ITEM(outputs, i, pair), PyObject_GC_UnTrack(pair);
    }
    if (outputs != NULL) PyObject_GC_UnTrack(outputs);
    return outputs;
}

/* Return the plan of a family for some sizes; NULL, with an exception or without, if only Python can make it. Steals
 * `parts`: layouts of the outputs, recipe, view and launcher. */
static PyObject *plan_from(PyObject *template, PyObject **parts) {
    PyObject *outputs = with_bytes(parts[0]), *plan = outputs == NULL ? NULL : new_object(Plan.type);
    Py_DECREF(parts[0]);
    if (plan == NULL) {
        Py_XDECREF(outputs);
        for (int i = 1; i < PLAN_PARTS; i++) Py_DECREF(parts[i]);
        return NULL;
    }
    PyObject *recipe = parts[1], *view = parts[2], *launcher = parts[3];
    int is_single = launcher != Py_None && recipe == Py_None && view == Py_None && PyTuple_GET_SIZE(outputs) == 1 &&
                    SLOT(template, Plan, has_only_tensors) == Py_True;
    INIT_SLOT(plan, Plan, single, is_single ? PyTuple_GET_ITEM(outputs, 0) : Py_None);
    INIT_SLOT_STEAL(plan, Plan, outputs, outputs);
    INIT_SLOT_STEAL(plan, Plan, recipe, recipe);
    INIT_SLOT_STEAL(plan, Plan, view, view);
    INIT_SLOT_STEAL(plan, Plan, run, launcher);
    INIT_SLOT(plan, Plan, planned, Py_None);
#define COPY(slot) INIT_SLOT(plan, Plan, slot, SLOT(template, Plan, slot))
    COPY(device), COPY(driver), COPY(visible), COPY(nbytes), COPY(tensors), COPY(numbers), COPY(has_only_tensors);
    PyObject_GC_UnTrack(plan);  /* see `build` in program.c */
    return plan;
}

/* Return the plan of a call from a family of its lineage; NULL without an exception if there is none, or if only
 * Python can fill it in. */
static PyObject *search_tree(const Search *search, PyObject *lineage) {
    PyObject *family = Py_NewRef(SLOT(lineage, Lineage, root)), *plan = NULL;
    while (family != NULL) {
        PyObject *program = SLOT(family, Family, program), *template = SLOT(family, Family, template);
        PyObject *parts[PLAN_PARTS];
        int outcome = template == Py_None ? 0 : GIVE_UP;  /* only the root has no template; it excludes all calls */
        if (Py_IS_TYPE(program, &program_type))
            outcome = run_program(program, search->layouts, search->sizes, parts);
        if (outcome == FILLED) plan = plan_from(template, parts);
        if (outcome < 0) break;
        PyObject *guard = PyLong_FromLong(outcome), *branch = NULL;
        if (guard != NULL) branch = Py_XNewRef(PyDict_GetItemWithError(SLOT(family, Family, branches), guard));
        Py_XDECREF(guard);
        Py_SETREF(family, branch);
    }
    Py_XDECREF(family);
    if (plan == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return plan;
}

/* Return the plan of a call from a plan family as a new reference; NULL without an exception if Python has to plan.
 * operands: the layout of each tensor, the type of each number, or None. into: layouts of existing results, or NULL. */
PyObject *fill_plan(PyObject *record, List operands, PyObject *statics, PyObject *grad_mask, PyObject *into) {
    if (context_module == NULL || !Py_IS_TYPE(record, OpRecord.type) || !PyTuple_Check(statics)) return NULL;
    PyObject *settled = PyObject_CallNoArgs(has_settled);
    Py_XDECREF(settled);
    if (settled != Py_True) return NULL;
    Search search;
    search.layout_count = search.size_count = 0;
    PyObject *lineage = lineage_of(&search, record, grad_mask, operands, into, statics);
    if (lineage == NULL) {  /* Python raises the error of a key without a hash */
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
        return NULL;
    }
    PyObject *plan = search_tree(&search, lineage);
    Py_DECREF(lineage);
    return plan;
}

/* Store a new plan in a thread's plans. Return 0, or -1 with an exception. */
int store_plan(PyObject *plans, PyObject *key, PyObject *plan) {
    Py_ssize_t count = PyDict_GET_SIZE(plans);
    if (count && count % plans_between_checks == 0) {
        PyObject *result = PyObject_CallOneArg(drop_oldest, plans);
        Py_XDECREF(result);
        if (result == NULL) return -1;
    }
    PyObject_GC_UnTrack(key);
    return PyDict_SetItem(plans, key, plan);
}

/* The module's `fill_plan`. */
PyObject *fill_plan_from_python(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *record, *operands, *statics, *grad_mask, *into;
    if (!PyArg_ParseTuple(args, "OO!OOO", &record, &PyList_Type, &operands, &statics, &grad_mask, &into)) return NULL;
    PyObject *layouts = into == Py_None ? NULL : into;
    if (layouts != NULL && !PyTuple_Check(layouts)) Py_RETURN_NONE;
    PyObject *plan = fill_plan(record, list_of(operands), statics, grad_mask, layouts);
    if (plan != NULL || PyErr_Occurred()) return plan;
    Py_RETURN_NONE;
}
