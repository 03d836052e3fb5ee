#include <gtest/gtest.h>

#include "plumbline/comm/mpi/mpi_group.h"

namespace plumbline {
namespace {

TEST(NoMpiTest, SaysWhatIsMissing) {
  EXPECT_EQ(StartMpi().error().message, "mpi: got a build without MPI, want one with it");
}

}  // namespace
}  // namespace plumbline
