/* Programs of plan families (runtime/plan_programs.py writes them): compute sizes, check guards, build a plan.
 *
 * A program computes in registers that hold 64-bit integers or doubles. The first ones hold sizes and strides of the
 * call, and the last ones the program's constants. Instructions compute as Python does, and compare: a guard that fails
 * ends the program. Where a result is no 64-bit integer, or a division is by zero, the program gives up, and
 * Python plans the call. If no guard fails, a second list of instructions builds the parts of the plan on a stack of
 * objects. */
#include "native.h"

enum { MAX_REGISTERS = 1024, MAX_STACK = 128, MAX_SAVED = 64, MAX_OPERANDS = 8, MAX_FIELDS = 16 };

typedef union { int64_t integer; double real; } Register;
typedef struct { uint16_t code, target, a, b; } Instruction;
typedef struct { PyTypeObject *type; int count; Py_ssize_t offsets[MAX_FIELDS]; } Fields;

typedef struct {
    PyObject_HEAD
    Py_ssize_t layout_count, size_count;  /* of a call */
    int constant_count, load_count, instruction_count, part_count, class_count;
    Register *constants;        /* of registers MAX_REGISTERS - 1 and lower */
    Instruction *loads;         /* code: SHAPE, STRIDES or STATIC_SIZES; a: layout; b: dimension */
    Instruction *instructions;
    Instruction *parts;         /* build the plan */
    uint16_t *lists;            /* numbers of registers, for instructions that take many */
    Py_ssize_t list_count;
    Fields *classes;
    PyObject *objects;          /* the objects to which instructions refer by number */
    PyObject *driver;           /* its method `launcher` makes launchers that have no template */
} Program;

/* The codes of instructions, in the order of `plan_programs.CODES`, `PARTS` and `SOURCES`. */
enum { ADD, SUBTRACT, MULTIPLY, FLOOR_DIVIDE, MODULO, SHIFT_LEFT, SHIFT_RIGHT, AND, OR, NEGATE, TO_REAL, ADD_REAL,
       SUBTRACT_REAL, MULTIPLY_REAL, DIVIDE_REAL, NEGATE_REAL, EQUAL, NOT_EQUAL, LESS, NOT_LESS, EQUAL_REAL,
       NOT_EQUAL_REAL, LESS_REAL, NOT_LESS_REAL, CALL };
enum { OBJECT, LAYOUT, INTEGER, REAL, TUPLE, BYTES, META, FIELDS, SAVE, PUSH_SAVED, LAUNCH, LAUNCH_HOST, SEQUENCE };
enum { SHAPE, STRIDES, STATIC_SIZES };

/* Call a Python function of integers. Return 0, GIVE_UP or FAILED. */
static int call_function(PyObject *function, const uint16_t *operands, int count,
                         Register *registers, int64_t *result) {
    PyObject *arguments[MAX_OPERANDS + 1], *value = NULL;
    int overflow = 0, created = 0;
    for (; created < count; created++)
        if ((arguments[created] = PyLong_FromLongLong(registers[operands[created]].integer)) == NULL) break;
    if (created == count) value = PyObject_Vectorcall(function, arguments, (size_t)count, NULL);
    while (created > 0) Py_DECREF(arguments[--created]);
    if (value == NULL) return FAILED;
    int is_integer = PyLong_Check(value);
    if (is_integer) *result = PyLong_AsLongLongAndOverflow(value, &overflow);
    Py_DECREF(value);
    return is_integer && !overflow ? 0 : GIVE_UP;
}

static int64_t floor_quotient(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

/* Without `a - floor_quotient(a, b) * b`, whose product overflows near INT64_MIN. */
static int64_t floor_remainder(int64_t a, int64_t b) {
    int64_t remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

/* Read the sizes of a call. Return 0, GIVE_UP or FAILED. */
static int load(const Program *self, PyObject *const *layouts, const int64_t *sizes, Register *registers) {
    for (int i = 0; i < self->load_count; i++) {
        Instruction source = self->loads[i];
        if (source.code == STATIC_SIZES) {
            registers[source.target].integer = sizes[source.b];
            continue;
        }
        PyObject *layout = layouts[source.a];
        PyObject *values = source.code == STRIDES ? SLOT(layout, Meta, strides) : SLOT(layout, Meta, shape);
        if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) <= source.b) return GIVE_UP;
        int overflow;
        registers[source.target].integer = PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(values, source.b), &overflow);
        if (overflow) return GIVE_UP;
        if (registers[source.target].integer == -1 && PyErr_Occurred()) return FAILED;
    }
    return 0;
}

/* Compute the registers. Return FILLED, GIVE_UP, FAILED, or the number of the guard that failed. */
static int execute(const Program *self, Register *registers) {
#define A registers[i.a]
#define B registers[i.b]
#define TARGET registers[i.target]
#define CHECKED(function)                                                                                              \
    if (function(A.integer, B.integer, &TARGET.integer)) return GIVE_UP;                                               \
    break
#define GUARD(condition)                                                                                               \
    if (!(condition)) return i.target;                                                                                 \
    break
    for (const Instruction *next = self->instructions, *end = next + self->instruction_count; next < end; next++) {
        Instruction i = *next;
        int64_t limit = 1LL << 53;
        switch (i.code) {
            case ADD: CHECKED(__builtin_add_overflow);
            case SUBTRACT: CHECKED(__builtin_sub_overflow);
            case MULTIPLY: CHECKED(__builtin_mul_overflow);
            case FLOOR_DIVIDE:
            case MODULO:
                if (B.integer == 0 || (A.integer == INT64_MIN && B.integer == -1)) return GIVE_UP;
                TARGET.integer = (i.code == MODULO ? floor_remainder : floor_quotient)(A.integer, B.integer);
                break;
            case SHIFT_LEFT:
                if (B.integer < 0 || B.integer > 62 ||
                    __builtin_mul_overflow(A.integer, (int64_t)1 << B.integer, &TARGET.integer))
                    return GIVE_UP;
                break;
            case SHIFT_RIGHT:
                if (B.integer < 0 || B.integer > 62) return GIVE_UP;
                TARGET.integer = A.integer >> B.integer;
                break;
            case AND: TARGET.integer = A.integer & B.integer; break;
            case OR: TARGET.integer = A.integer | B.integer; break;
            case NEGATE:
                if (A.integer == INT64_MIN) return GIVE_UP;
                TARGET.integer = -A.integer;
                break;
            case TO_REAL:  /* Python compares integers with floats exactly: give up where a double is not exact */
                if (A.integer > limit || A.integer < -limit) return GIVE_UP;
                TARGET.real = (double)A.integer;
                break;
            case ADD_REAL: TARGET.real = A.real + B.real; break;
            case SUBTRACT_REAL: TARGET.real = A.real - B.real; break;
            case MULTIPLY_REAL: TARGET.real = A.real * B.real; break;
            case DIVIDE_REAL:
                if (B.real == 0) return GIVE_UP;
                TARGET.real = A.real / B.real;
                break;
            case NEGATE_REAL: TARGET.real = -A.real; break;
            case EQUAL: GUARD(A.integer == B.integer);
            case NOT_EQUAL: GUARD(A.integer != B.integer);
            case LESS: GUARD(A.integer < B.integer);
            case NOT_LESS: GUARD(!(A.integer < B.integer));
            case EQUAL_REAL: GUARD(A.real == B.real);
            case NOT_EQUAL_REAL: GUARD(A.real != B.real);
            case LESS_REAL: GUARD(A.real < B.real);
            case NOT_LESS_REAL: GUARD(!(A.real < B.real));
            case CALL: {  /* a: the list of operands, with their number in front; b: the function */
                const uint16_t *operands = self->lists + i.a;
                int outcome = call_function(PyTuple_GET_ITEM(self->objects, i.b), operands + 1, operands[0],
                                            registers, &TARGET.integer);
                if (outcome) return outcome;
                break;
            }
            default: return GIVE_UP;
        }
    }
    return FILLED;
#undef A
#undef B
#undef TARGET
}

/* Pack integers as `layout.pack_longs` does. */
static PyObject *pack_bytes(const uint16_t *numbers, int count, const Register *registers) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    for (int i = 0; bytes != NULL && i < count; i++)
        memcpy(PyBytes_AS_STRING(bytes) + i * sizeof(int64_t), &registers[numbers[i]].integer, sizeof(int64_t));
    return bytes;
}

static PyObject *launch_of(PyObject *template, PyObject *geometry, const uint16_t *numbers, const Register *registers) {
    size_t size[3];
    for (int k = 0; k < 3; k++) {
        int64_t items = registers[numbers[k]].integer;
        if (items < 1) return Py_DECREF(geometry), PyErr_Format(PyExc_ValueError, "a launch of no work-items");
        size[k] = (size_t)items;
    }
    return host_launcher_of(template, geometry, size, registers[numbers[3]].integer);
}

/* Return whether a driver's method `launcher` is hidden by an attribute, with which tools collect steps. */
static int is_launcher_replaced(PyObject *driver) {
    PyObject *attributes = PyObject_GenericGetDict(driver, NULL);
    int is_replaced = attributes == NULL ? -1 : PyDict_Contains(attributes, s_launcher);
    Py_XDECREF(attributes);
    return is_replaced;
}

/* Build objects. The garbage collector need not visit them: nothing that a plan refers to refers to plans, so that they
 * are in no cycle. If it did visit the plans of a program that goes through many sizes, collections would take longer
 * than planning. Return the last `count` of the stack in `results`: 0; or -1, with an exception or without. */
static int build(const Program *self, PyObject *const *layouts, const Register *registers, PyObject **results,
                 int count) {
    PyObject *stack[MAX_STACK], **top = stack, *saved[MAX_SAVED];
    int saved_count = 0;
    for (const Instruction *next = self->parts, *end = next + self->part_count; next < end; next++) {
        Instruction i = *next;
        PyObject *value = NULL;
        switch (i.code) {
            case OBJECT: value = Py_NewRef(PyTuple_GET_ITEM(self->objects, i.a)); break;
            case LAYOUT: value = Py_NewRef(layouts[i.a]); break;
            case INTEGER: value = PyLong_FromLongLong(registers[i.a].integer); break;
            case REAL: value = PyFloat_FromDouble(registers[i.a].real); break;
            case PUSH_SAVED: value = Py_NewRef(saved[i.a]); break;
            case BYTES: value = pack_bytes(self->lists + i.a, i.b, registers); break;
            case SAVE: saved[saved_count++] = Py_NewRef(top[-1]); continue;
            case TUPLE:
                if ((value = PyTuple_New(i.a)) == NULL) goto failed;
                top -= i.a;
                for (int k = 0; k < i.a; k++) PyTuple_SET_ITEM(value, k, top[k]);
                PyObject_GC_UnTrack(value);
                break;
            case META: {  /* a: the dtype; b: the device */
                top -= 2;
                value = layout_of(PyTuple_GET_ITEM(self->objects, i.a), top[0], top[1],
                                  PyTuple_GET_ITEM(self->objects, i.b));
                Py_DECREF(top[0]);
                Py_DECREF(top[1]);
                break;
            }
            case FIELDS: {
                const Fields *fields = &self->classes[i.a];
                if ((value = new_object(fields->type)) == NULL) goto failed;
                top -= fields->count;
                for (int k = 0; k < fields->count; k++) *(PyObject **)((char *)value + fields->offsets[k]) = top[k];
                PyObject_GC_UnTrack(value);
                break;
            }
            case LAUNCH:
                top -= 2;
                value = PyObject_CallMethodObjArgs(self->driver, s_launcher, top[0], top[1], NULL);
                Py_DECREF(top[0]);
                Py_DECREF(top[1]);
                break;
            case SEQUENCE:  /* a: the device */
                top -= 2;
                value = sequence_of(PyTuple_GET_ITEM(self->objects, i.a), self->driver, top[0], top[1]);
                Py_DECREF(top[0]);
                Py_DECREF(top[1]);
                if (value != NULL) PyObject_GC_UnTrack(value);
                break;
            case LAUNCH_HOST: {  /* a: the HostTemplate; b: the list of sizes and work */
                if (is_launcher_replaced(self->driver)) goto failed;
                PyObject *geometry = *--top;
                value = launch_of(PyTuple_GET_ITEM(self->objects, i.a), geometry, self->lists + i.b, registers);
                break;
            }
        }
        if (value == NULL) goto failed;
        *top++ = value;
    }
    while (saved_count > 0) Py_DECREF(saved[--saved_count]);
    top -= count;
    memcpy(results, top, (size_t)count * sizeof *results);
    return 0;
failed:
    while (top > stack) Py_DECREF(*--top);
    while (saved_count > 0) Py_DECREF(saved[--saved_count]);
    return -1;
}

int run_program(PyObject *program, PyObject *const *layouts, const int64_t *sizes, PyObject **results) {
    Program *self = (Program *)program;
    Register registers[MAX_REGISTERS];
    memcpy(registers + MAX_REGISTERS - self->constant_count, self->constants,
           (size_t)self->constant_count * sizeof *registers);
    int outcome = load(self, layouts, sizes, registers);
    if (outcome == 0) outcome = execute(self, registers);
    if (outcome == FILLED && build(self, layouts, registers, results, PLAN_PARTS))
        outcome = PyErr_Occurred() ? FAILED : GIVE_UP;
    return outcome;
}

/* The type. */

static void *copy_of(const void *source, Py_ssize_t size) {
    void *copy = PyMem_Malloc(size > 0 ? (size_t)size : 1);
    return copy == NULL ? PyErr_NoMemory() : memcpy(copy, source, (size_t)size);
}

static int read_constants(Program *self, PyObject *numbers) {
    self->constant_count = (int)PyTuple_GET_SIZE(numbers);
    if ((self->constants = PyMem_Calloc((size_t)self->constant_count + 1, sizeof(Register))) == NULL)
        return PyErr_NoMemory(), -1;
    for (int i = 0; i < self->constant_count; i++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, i);
        Register *constant = &self->constants[self->constant_count - 1 - i];
        if (PyFloat_Check(number)) constant->real = PyFloat_AS_DOUBLE(number);
        else constant->integer = PyLong_AsLongLong(number);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_classes(Program *self, PyObject *classes) {
    self->class_count = (int)PyTuple_GET_SIZE(classes);
    if ((self->classes = PyMem_Calloc((size_t)self->class_count + 1, sizeof(Fields))) == NULL)
        return PyErr_NoMemory(), -1;
    for (int i = 0; i < self->class_count; i++) {
        PyObject *class = PyTuple_GET_ITEM(classes, i), *names = PyObject_GetAttrString(class, "__slots__");
        Fields *fields = &self->classes[i];
        /* `build` untracks objects, so that they need the collector's header; a class of C code may have none. */
        if (names == NULL || !PyType_Check(class) || !PyType_IS_GC((PyTypeObject *)class) || !PyTuple_Check(names) ||
            PyTuple_GET_SIZE(names) > MAX_FIELDS) {
            Py_XDECREF(names);
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "a class with slots is expected"), -1);
        }
        fields->count = (int)PyTuple_GET_SIZE(names);
        for (int k = 0; k < fields->count; k++)
            if (find_slot_offset((PyTypeObject *)class, PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k)),
                                 &fields->offsets[k]))
                return Py_DECREF(names), -1;
        Py_DECREF(names);
        fields->type = (PyTypeObject *)Py_NewRef(class);
    }
    return 0;
}

/* Return the change in the stack's height by an instruction that builds, or the number of objects that it reads. */
static int height_change(const Program *self, Instruction i, int *read) {
    switch (i.code) {
        case TUPLE: return *read = i.a, 1 - i.a;
        case META: return *read = 2, -1;
        case FIELDS: return *read = self->classes[i.a].count, 1 - self->classes[i.a].count;
        case LAUNCH:
        case SEQUENCE: return *read = 2, -1;
        case LAUNCH_HOST: return *read = 1, 0;
        case SAVE: return *read = 1, 0;
        default: return *read = 0, 1;
    }
}

/* Return whether instructions stay within the arrays that they refer to. Writing a program takes longer than this. */
static int is_valid(const Program *self) {
    Py_ssize_t objects = PyTuple_GET_SIZE(self->objects), layouts = self->layout_count, sizes = self->size_count;
    int height = 0, saved = 0;
    if (self->constant_count > MAX_REGISTERS || sizes > MAX_STATIC_SIZES) return 0;
#define REGISTER(number) ((number) < MAX_REGISTERS)
#define LIST(begin, count) ((begin) + (Py_ssize_t)(count) <= self->list_count)
    for (int k = 0; k < self->load_count; k++) {
        Instruction i = self->loads[k];
        if (!REGISTER(i.target) || (i.code == STATIC_SIZES ? i.b >= sizes : i.a >= layouts)) return 0;
    }
    for (int k = 0; k < self->instruction_count; k++) {
        Instruction i = self->instructions[k];
        int is_guard = i.code >= EQUAL && i.code <= NOT_LESS_REAL;
        if (i.code > CALL || (!is_guard && !REGISTER(i.target))) return 0;
        if (i.code != CALL && (!REGISTER(i.a) || !REGISTER(i.b))) return 0;
        if (i.code == CALL && (i.b >= objects || !LIST(i.a, 1) || self->lists[i.a] > MAX_OPERANDS ||
                               !LIST(i.a + 1, self->lists[i.a])))
            return 0;
    }
    for (Py_ssize_t k = 0; k < self->list_count; k++)
        if (!REGISTER(self->lists[k])) return 0;
    for (int k = 0; k < self->part_count; k++) {
        Instruction i = self->parts[k];
        int read, change;
        if (i.code > SEQUENCE || (i.code == FIELDS && i.a >= self->class_count)) return 0;
        if ((i.code == OBJECT || i.code == META || i.code == LAUNCH_HOST || i.code == SEQUENCE) && i.a >= objects) return 0;
        if (i.code == META && i.b >= objects) return 0;
        if (i.code == LAYOUT && i.a >= layouts) return 0;
        if ((i.code == INTEGER || i.code == REAL) && !REGISTER(i.a)) return 0;
        if (i.code == BYTES && !LIST(i.a, i.b)) return 0;
        if (i.code == LAUNCH_HOST &&
            (!LIST(i.b, 4) || !Py_IS_TYPE(PyTuple_GET_ITEM(self->objects, i.a), &host_template_type)))
            return 0;
        if (i.code == PUSH_SAVED && i.a >= saved) return 0;
        if (i.code == SAVE && ++saved > MAX_SAVED) return 0;
        change = height_change(self, i, &read);
        if (height < read || (height += change) > MAX_STACK) return 0;
    }
    return height == PLAN_PARTS;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *constants, *objects, *classes, *launching_driver;
    Py_buffer loads = {0}, instructions = {0}, parts = {0}, lists = {0};
    Py_ssize_t layouts, sizes;
    if (!PyArg_ParseTuple(args, "nnO!y*y*y*y*O!O!O", &layouts, &sizes, &PyTuple_Type, &constants, &loads, &instructions,
                          &parts, &lists, &PyTuple_Type, &objects, &PyTuple_Type, &classes, &launching_driver))
        return NULL;
    Program *self = (Program *)new_object(type);
    if (self != NULL) {
        self->layout_count = layouts, self->size_count = sizes;
        self->objects = Py_NewRef(objects), self->driver = Py_NewRef(launching_driver);
        self->loads = copy_of(loads.buf, loads.len), self->load_count = (int)(loads.len / sizeof(Instruction));
        self->instructions = copy_of(instructions.buf, instructions.len);
        self->instruction_count = (int)(instructions.len / sizeof(Instruction));
        self->parts = copy_of(parts.buf, parts.len), self->part_count = (int)(parts.len / sizeof(Instruction));
        self->lists = copy_of(lists.buf, lists.len), self->list_count = lists.len / (Py_ssize_t)sizeof(uint16_t);
        int failed = PyErr_Occurred() || read_constants(self, constants) || read_classes(self, classes);
        if (!failed && !is_valid(self)) {
            PyErr_SetString(PyExc_ValueError, "a program refers to what it does not have, or is too long");
            failed = 1;
        }
        if (failed) Py_CLEAR(self);
    }
    PyBuffer_Release(&loads);
    PyBuffer_Release(&instructions);
    PyBuffer_Release(&parts);
    PyBuffer_Release(&lists);
    return (PyObject *)self;
}

static int traverse(Program *self, visitproc visit, void *arg) {
    Py_VISIT(self->objects);
    Py_VISIT(self->driver);
    for (int i = 0; self->classes != NULL && i < self->class_count; i++) Py_VISIT(self->classes[i].type);
    return 0;
}

/* No `tp_clear`: a cycle through a program goes through one of its objects, which have one. */
static void dealloc(Program *self) {
    PyObject_GC_UnTrack(self);
    for (int i = 0; self->classes != NULL && i < self->class_count; i++) Py_XDECREF(self->classes[i].type);
    Py_XDECREF(self->objects);
    Py_XDECREF(self->driver);
    PyMem_Free(self->constants);
    PyMem_Free(self->loads);
    PyMem_Free(self->instructions);
    PyMem_Free(self->parts);
    PyMem_Free(self->lists);
    PyMem_Free(self->classes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Read the arguments of `program(layouts, sizes)`. Return 0, or -1 with an exception. */
static int read_call(const Program *self, PyObject *layouts, PyObject *sizes, int64_t *numbers) {
    if (PyTuple_GET_SIZE(layouts) != self->layout_count || PyTuple_GET_SIZE(sizes) != self->size_count) {
        PyErr_Format(PyExc_ValueError, "this program takes %zd layouts and %zd sizes, not %zd and %zd; pass those of "
                     "a call of its lineage", self->layout_count, self->size_count, PyTuple_GET_SIZE(layouts),
                     PyTuple_GET_SIZE(sizes));
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->layout_count; i++) {
        PyObject *layout = PyTuple_GET_ITEM(layouts, i);
        if (Py_IS_TYPE(layout, Meta.type)) continue;
        PyErr_Format(PyExc_TypeError, "a program takes layouts, not %s", Py_TYPE(layout)->tp_name);
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->size_count; i++) numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* `program(layouts, sizes)`: for tests, and for callers that plan a call in Python. */
static PyObject *program_call(PyObject *self, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *layouts, *sizes, *results[PLAN_PARTS];
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &layouts, &PyList_Type, &sizes)) return NULL;
    int64_t numbers[MAX_STATIC_SIZES];
    int outcome = FAILED;
    /* Tuples, because the program may call Python functions, which could change the caller's lists. */
    layouts = PyList_AsTuple(layouts), sizes = PyList_AsTuple(sizes);
    if (layouts != NULL && sizes != NULL && read_call((Program *)self, layouts, sizes, numbers) == 0)
        outcome = run_program(self, PySequence_Fast_ITEMS(layouts), numbers, results);
    Py_XDECREF(layouts);
    Py_XDECREF(sizes);
    if (outcome == FAILED) return NULL;
    if (outcome == GIVE_UP) Py_RETURN_NONE;
    if (outcome >= 0) return PyLong_FromLong(outcome);
    PyObject *parts = PyTuple_New(PLAN_PARTS);
    for (int i = 0; i < PLAN_PARTS; i++)
        if (parts != NULL) PyTuple_SET_ITEM(parts, i, results[i]);
        else Py_DECREF(results[i]);
    return parts;
}

PyDoc_STRVAR(doc,
"Program(layouts, sizes, constants, loads, instructions, parts, lists, objects, classes, driver)\n--\n\n"
"The function of a plan family, for C (runtime/plan_programs.py says what the arguments are).\n\n"
"`program(layouts, sizes)` returns the outputs, recipe, view and launcher of a plan; or the number of the guard that\n"
"excludes the call; or None if Python has to plan it. Raises ValueError for a program that is not valid or too long.");

PyTypeObject program_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = doc,
    .tp_new = program_new,
    .tp_call = program_call,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
};
