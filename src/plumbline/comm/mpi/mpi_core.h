// What all groups of a process share under MPI. Groups are told apart by the tags of their messages on one
// MPI communicator, so nothing here ever blocks inside MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plumbline/comm/mpi/side_channel.h"

namespace plumbline {

// A buffer that grows to the largest it was asked for.
struct MpiBuffer {
  std::unique_ptr<std::byte[]> bytes;
  size_t capacity = 0;

  std::byte* Reserve(size_t size) {
    if (size > capacity) {
      bytes = std::make_unique_for_overwrite<std::byte[]>(size);
      capacity = size;
    }
    return bytes.get();
  }
};

struct MpiCore {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int spins = 0;  // how often to ask MPI before the core is given away
  int next_context = 1;
  int families = 0;
  std::unique_ptr<SideChannel> side;
  // Buffers of operations that an error cut short: MPI may still write to them.
  std::vector<MpiBuffer> abandoned;
};

// Tags are [context, 14 bits][whether a message of a collective][its number or the caller's tag, 16 bits].
inline constexpr int kMaxContexts = 1 << 14;
constexpr int MpiTag(int context, bool collective, uint32_t low) {
  return static_cast<int>(static_cast<uint32_t>(context) << 17 | static_cast<uint32_t>(collective) << 16 |
                          (low & 0xffff));
}

}  // namespace plumbline
