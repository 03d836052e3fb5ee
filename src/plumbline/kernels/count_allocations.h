// How often this program has asked for memory. For tests that say a call allocates nothing once warm.
#pragma once

#include <cstdint>

namespace plumbline {

// Calls of operator new so far, by any thread.
int64_t Allocations();

}  // namespace plumbline
