// The list of verify on every tiny checkpoint, in every compute type it takes: one digest a quantity over
// every axis.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "../golden/golden_files.h"
#include "plumbline/pipelines/engine_test_util.h"
#include "plumbline/pipelines/verify.h"

namespace plumbline {
namespace {

class VerifyInvariance : public testing::TestWithParam<std::string> {};

TEST_P(VerifyInvariance, OneDigestOverEveryAxis) {
  const std::filesystem::path gguf = GoldenFolder() / "models" / GetParam() / "model.gguf";
  const std::string name = std::filesystem::exists(gguf) ? GetParam() + "/model.gguf" : GetParam();
  for (const Compute compute : ComputesOf(name)) {
    SCOPED_TRACE(Name(compute));
    const std::unique_ptr<Runtime> runtime = LoadTiny(name, 2, compute);
    ASSERT_NE(runtime, nullptr);
    const auto report = Verify(*runtime, nullptr, [](const VerifyCaseReport&) { return Status(); });
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_TRUE(report->ok) << report->difference;
    for (const VerifyCaseReport& done : report->cases) {
      const std::string what = done.how.axis + " " + done.how.value;
      EXPECT_EQ(done.difference, "") << what;
      EXPECT_EQ(done.digests, report->cases.front().digests) << what;
      // The axes are taken, not only asked for.
      // With replicas, a request may come to another one than what it shares a prefix with.
      if (done.how.degrees.dp == 1) {
        EXPECT_EQ(done.rows_reused > 0, done.how.known.value_or(0) >= done.how.page_size) << what;
      }
      EXPECT_EQ(done.drafts_accepted + done.drafts_rejected > 0,
                done.how.drafts > 0 || (done.how.strangers > 0 && done.how.unobserved_too))
          << what;
    }
    const VerifyDigests& digests = report->cases.front().digests;
    EXPECT_EQ(std::set(digests.begin(), digests.end()).size(), digests.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VerifyInvariance, testing::ValuesIn(TinyModels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plumbline
