#include "plumbline/comm/communicator_contract.h"
#include "plumbline/comm/communicator_fault_contract.h"
#include "plumbline/comm/local/local_group.h"

namespace plumbline {
namespace {

std::vector<ContractBackend> Backends() {
  std::vector<ContractBackend> backends;
  for (int ranks : {1, 2, 3, 4, 8}) {
    backends.push_back({.name = "local" + std::to_string(ranks), .ranks = ranks, .run = RunRanks});
  }
  return backends;
}

std::string Name(const ::testing::TestParamInfo<ContractBackend>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Local, CommunicatorContract, ::testing::ValuesIn(Backends()), Name);
INSTANTIATE_TEST_SUITE_P(Local, CommunicatorFaultContract, ::testing::ValuesIn(Backends()), Name);

}  // namespace
}  // namespace plumbline
