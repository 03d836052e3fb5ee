// What memory the machine can still give.
#pragma once

#include <cstdint>

namespace plumbline {

// Bytes the system could hand out without swapping (MemAvailable), at most what the control group allows
// beyond what it uses. INT64_MAX where the system does not say.
int64_t AvailableMemoryBytes();

// The most resident memory this process has had (VmHWM), in bytes; 0 where the system does not say.
int64_t PeakResidentBytes();

// Gives what the heap holds free back to the system: after loading, whose parse trees are large and
// short-lived.
void ReleaseFreeHeap();

}  // namespace plumbline
