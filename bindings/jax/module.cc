// plumbline.jax._ffi: handlers() is a dictionary from FFI target names to capsules, for
// jax.ffi.register_ffi_target.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bindings/jax/fused_attention_ffi.h"

namespace {

bool AddHandler(PyObject* handlers, const char* name, XLA_FFI_Handler* handler) {
  PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr);
  if (capsule == nullptr) return false;
  const int failed = PyDict_SetItemString(handlers, name, capsule);
  Py_DECREF(capsule);
  return failed == 0;
}

PyObject* Handlers(PyObject* /*module*/, PyObject* /*arguments*/) {
  PyObject* handlers = PyDict_New();
  if (handlers == nullptr) return nullptr;
  if (!AddHandler(handlers, "plumbline_fused_attention", plumbline::FusedAttentionForwardHandler) ||
      !AddHandler(handlers, "plumbline_fused_attention_grad", plumbline::FusedAttentionBackwardHandler)) {
    Py_DECREF(handlers);
    return nullptr;
  }
  return handlers;
}

PyMethodDef methods[] = {{"handlers", Handlers, METH_NOARGS, "FFI handlers by target name."}, {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_ffi", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__ffi() { return PyModule_Create(&module); }
