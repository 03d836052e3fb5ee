// What every kernel needs from its caller, passed by reference, never a singleton.
#pragma once

#include "plumbline/base/isa.h"
#include "plumbline/base/thread_pool.h"

namespace plumbline {

struct KernelContext {
  ThreadPool& pool;
  Isa isa;
};

}  // namespace plumbline
