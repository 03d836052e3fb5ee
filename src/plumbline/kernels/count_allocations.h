// How often this program has asked for memory. For tests that say a call allocates nothing once warm.
#pragma once

#include <cstdint>

namespace plumbline {

// Calls of operator new so far, by any thread.
int64_t Allocations();

// Calls of mmap so far, by any thread: a Buffer is one. Always 0 under sanitizers, which have an mmap of
// their own.
int64_t Mappings();

}  // namespace plumbline
