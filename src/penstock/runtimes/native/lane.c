/* A lane whose thread runs C functions without the interpreter.
 *
 * A thread of Python's has to wait for the interpreter after each run before it may begin the next
 * one, while the event loop uses it. This one holds a queue of runs and begins the next at once; it
 * never takes the interpreter. Results wake the loop through an eventfd, several that wait need one
 * wake-up.
 *
 * Built where a C compiler is found; without it, lanes are threads of Python's (lane_threads.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A lane has one run under way and one ahead. A power of two: counters wrap. */
#define RUNS_MAX 16u

typedef int (*function_t)(void *);

typedef struct {
    unsigned long long id;
    function_t function;
    void *argument;
    int status;
} run_t;

typedef struct {
    run_t runs[RUNS_MAX];
    unsigned first, end; /* counters of all that were taken and put */
} queue_t;

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    queue_t waiting, ended;
    unsigned open; /* submitted, and not yet returned by `results` */
    int wake;      /* the eventfd; belongs to the caller */
    long native_id;
    int begun, closing;
} lane_t;

static void put(queue_t *queue, run_t run) { queue->runs[queue->end++ % RUNS_MAX] = run; }

static run_t take(queue_t *queue) { return queue->runs[queue->first++ % RUNS_MAX]; }

static int is_empty(const queue_t *queue) { return queue->first == queue->end; }

static void *serve(void *given)
{
    lane_t *lane = given;
    struct sched_param normal = {0};
    const uint64_t one = 1;

    /* It computes, and has inherited what an event loop is (scheduling.py). A guest stays one. */
    if (sched_getscheduler(0) == SCHED_BATCH)
        (void)sched_setscheduler(0, SCHED_OTHER, &normal);
    (void)pthread_setname_np(pthread_self(), "lane");
    pthread_mutex_lock(&lane->mutex);
    lane->native_id = syscall(SYS_gettid);
    pthread_cond_broadcast(&lane->changed);
    for (;;) {
        while (is_empty(&lane->waiting) && !lane->closing)
            pthread_cond_wait(&lane->changed, &lane->mutex);
        if (is_empty(&lane->waiting))
            break;
        run_t run = take(&lane->waiting);
        pthread_mutex_unlock(&lane->mutex);
        run.status = run.function(run.argument);
        pthread_mutex_lock(&lane->mutex);
        int wakes = is_empty(&lane->ended);
        put(&lane->ended, run);
        if (wakes) { /* whoever is woken takes all that ended by then */
            pthread_mutex_unlock(&lane->mutex);
            while (write(lane->wake, &one, sizeof one) < 0 && errno == EINTR) {
            }
            pthread_mutex_lock(&lane->mutex);
        }
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

static int begin_thread(lane_t *self)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are for threads of Python's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, serve, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int lane_init(lane_t *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"wake", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "i", names, &self->wake))
        return -1;
    if (self->begun) {
        PyErr_SetString(PyExc_RuntimeError, "the lane has begun");
        return -1;
    }
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    int error = begin_thread(self);
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    self->begun = 1;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->mutex);
    while (!self->native_id)
        pthread_cond_wait(&self->changed, &self->mutex);
    pthread_mutex_unlock(&self->mutex);
    Py_END_ALLOW_THREADS
    return 0;
}

static PyObject *lane_submit(lane_t *self, PyObject *args)
{
    unsigned long long id, function, argument;
    const char *refused = NULL;
    if (!PyArg_ParseTuple(args, "KKK", &id, &function, &argument))
        return NULL;
    run_t run = {id, (function_t)(uintptr_t)function, (void *)(uintptr_t)argument, 0};
    pthread_mutex_lock(&self->mutex); /* held for less than a microsecond */
    if (self->closing) {
        refused = "the lane is closed";
    } else if (self->open == RUNS_MAX) {
        refused = "the lane has no room for one more run";
    } else {
        self->open++;
        put(&self->waiting, run);
        pthread_cond_signal(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    if (refused) {
        PyErr_SetString(PyExc_RuntimeError, refused);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *lane_results(lane_t *self, PyObject *unused)
{
    run_t ended[RUNS_MAX];
    unsigned count = 0;
    pthread_mutex_lock(&self->mutex);
    while (!is_empty(&self->ended))
        ended[count++] = take(&self->ended);
    self->open -= count;
    pthread_mutex_unlock(&self->mutex);
    PyObject *results = PyList_New(count);
    for (unsigned at = 0; results && at < count; at++) {
        PyObject *pair = Py_BuildValue("(Ki)", ended[at].id, ended[at].status);
        if (!pair)
            Py_CLEAR(results);
        else
            PyList_SET_ITEM(results, at, pair);
    }
    return results;
}

static void end_thread(lane_t *self)
{
    if (!self->begun)
        return;
    self->begun = 0;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->mutex);
    self->closing = 1;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
}

static PyObject *lane_close(lane_t *self, PyObject *unused)
{
    end_thread(self);
    Py_RETURN_NONE;
}

static void lane_dealloc(lane_t *self)
{
    end_thread(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *lane_native_id(lane_t *self, void *unused)
{
    return PyLong_FromLong(self->native_id);
}

static PyMethodDef methods[] = {
    {"submit", (PyCFunction)lane_submit, METH_VARARGS, NULL},
    {"results", (PyCFunction)lane_results, METH_NOARGS, NULL},
    {"close", (PyCFunction)lane_close, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef properties[] = {
    {"native_id", (getter)lane_native_id, NULL, NULL, NULL},
    {NULL},
};

static PyTypeObject lane_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "penstock.runtimes.native.lane.NativeLane",
    .tp_basicsize = sizeof(lane_t),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)lane_init,
    .tp_dealloc = (destructor)lane_dealloc,
    .tp_methods = methods,
    .tp_getset = properties,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "lane", NULL, -1, NULL};

PyMODINIT_FUNC PyInit_lane(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddType(made, &lane_type) < 0)
        Py_CLEAR(made);
    return made;
}
