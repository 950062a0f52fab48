#include "tools/kv_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/engine_options.hpp"
#include "tools/inspect_plan.hpp"

namespace outrider::tools {
namespace {

namespace fs = std::filesystem;
using kernels::KvKind;
using testing::AllOf;
using testing::HasSubstr;

StoredKvPlan a_plan() {
  StoredKvPlan stored{.model = "tiny", .device = "a cpu", .fingerprint = "abcd", .plan = {}};
  stored.made = UnixTime(std::chrono::seconds(1'700'000'000));
  stored.plan.context_tokens = 100;
  stored.plan.kv_memory_bytes = 1 << 20;
  stored.plan.depth = 99;
  stored.plan.baseline = {.nll = 2.25};
  for (const KvKind kind : {KvKind::q8_0, KvKind::q3, KvKind::fp32, KvKind::fp16}) {
    model::KvCandidate& candidate = stored.plan.candidates.emplace_back();
    candidate.kinds = {kind, kind};
    candidate.token_bytes = 1000;
    candidate.context_bytes = 100'000;
    candidate.quality = stored.plan.baseline;
    candidate.step = Duration(5'000'000);
  }
  stored.plan.candidates[0].kinds.k_hadamard = true;
  stored.plan.candidates[3].spread = 1.125;
  stored.plan.candidates[1].quality = {.nll = std::nan(""), .mean_kl = 0.5, .needle_kl = 0.25};
  stored.plan.candidates[1].step.reset();
  stored.plan.candidates[2].context_bytes = 1 << 21;
  stored.plan.candidates[2].quality.reset();
  OUTRIDER_CHECK(choose_kv(stored.plan).ok());
  return stored;
}

TEST(KvPlanFile, HoldsAllFiguresAndFindsTheSameChoiceInThem) {
  const StoredKvPlan stored = a_plan();
  const std::string text = kv_plan_json(stored);
  const auto again = parse_kv_plan(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(kv_plan_json(*again), text);
  EXPECT_EQ(again->plan.chosen()->kinds, (kernels::KvKinds{KvKind::q8_0, KvKind::q8_0, true}));
  EXPECT_THAT(again->plan.candidates[1].reason, HasSubstr("NLL"));
  EXPECT_EQ(again->made, stored.made);
}

TEST(KvPlanFile, IsRefusedIfAnyByteChanged) {
  const std::string text = kv_plan_json(a_plan());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    const auto parsed = parse_kv_plan(damaged);
    // White space between values means nothing.
    if (parsed) {
      EXPECT_EQ(kv_plan_json(*parsed), text) << i;
    }
  }
  for (size_t length = 0; length < text.size() - 1; ++length) {
    EXPECT_FALSE(parse_kv_plan(text.substr(0, length)).ok()) << length;
  }
}

/// The same file with something else in it, and a checksum that fits.
std::string forged(const std::function<void(nlohmann::ordered_json&)>& change) {
  auto json = nlohmann::ordered_json::parse(kv_plan_json(a_plan()));
  json.erase("sha256");
  change(json);
  json["sha256"] = to_hex(sha256(json.dump()));
  return json.dump();
}

TEST(KvPlanFile, IsRefusedIfItsFiguresLeadElsewhere) {
  EXPECT_TRUE(parse_kv_plan(forged([](auto&) {})).ok());
  EXPECT_FALSE(parse_kv_plan(forged([](auto& json) { json["chosen"] = "q3"; })).ok());
  EXPECT_FALSE(parse_kv_plan(forged([](auto& json) { json["format"] = 2; })).ok());
  EXPECT_FALSE(parse_kv_plan(forged([](auto& json) { json.erase("gates"); })).ok());
  EXPECT_FALSE(parse_kv_plan(forged([](auto& json) { json["candidates"] = "none"; })).ok());
  EXPECT_FALSE(parse_kv_plan(forged([](auto& json) { json["candidates"].clear(); })).ok());
  EXPECT_FALSE(
      parse_kv_plan(forged([](auto& json) { json["candidates"][0]["step_ns"] = 0; })).ok());
  EXPECT_FALSE(
      parse_kv_plan(forged([](auto& json) { json["candidates"][0]["step_spread"] = 0.5; })).ok());
  const auto of_before =
      parse_kv_plan(forged([](auto& json) { json["candidates"][3].erase("step_spread"); }));
  ASSERT_TRUE(of_before.ok());
  EXPECT_EQ(of_before->plan.spread(), 1);
  EXPECT_FALSE(
      parse_kv_plan(forged([](auto& json) { json["candidates"][0]["kinds"] = "int1"; })).ok());
}

TEST(KvPlanFile, IsRefusedIfItNestsDeepHoweverDeep) {
  for (const size_t depth : {65u, 1'000'000u}) {
    const std::string arrays = std::string(depth, '[') + std::string(depth, ']');
    for (const std::string& text :
         {arrays, R"({"sha256":"","a":)" + arrays + "}", std::string(depth, '[')}) {
      const auto parsed = parse_kv_plan(text);
      ASSERT_FALSE(parsed.ok());
      EXPECT_EQ(parsed.error().code, ErrorCode::corrupt);
      EXPECT_THAT(parsed.error().message, HasSubstr("nests deeper than 64 levels"));
    }
  }
}

/// A directory of its own for files that are no plans.
class Plans : public testing::Test {
 protected:
  Plans() {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~Plans() override { fs::remove_all(directory_); }

  /// Of `inspect plan`: the exit code, what it printed, what it said of faults.
  struct Inspected {
    int code = -1;
    std::string out;
    std::string faults;
  };
  static Inspected inspected(const std::string& path) {
    CLI::App app;
    Action action;
    add_inspect_plan(app, action);
    app.parse("plan " + path);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Inspected out;
    out.code = action();
    out.out = testing::internal::GetCapturedStdout();
    out.faults = testing::internal::GetCapturedStderr();
    return out;
  }

  const std::string directory_ = testing::TempDir() + "outrider_kv_plan_files";
};

TEST_F(Plans, AreReadFromRegularFilesOnly) {
  const std::string pipe = directory_ + "/x.kv-plan";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto of_pipe = read_kv_plan(pipe);
  ASSERT_FALSE(of_pipe.ok());
  EXPECT_EQ(of_pipe.error().message, "not a regular file");
  const std::string link = directory_ + "/y.kv-plan";
  fs::create_symlink("/dev/zero", link);
  EXPECT_EQ(read_kv_plan(link).error().message, "not a regular file");
  fs::remove(link);
  ASSERT_TRUE(write_kv_plan(directory_ + "/real", a_plan()).ok());
  fs::create_symlink(directory_ + "/real", link);
  EXPECT_TRUE(read_kv_plan(link).ok());
  const auto told = inspected(directory_);
  EXPECT_EQ(told.code, k_exit_failed);
  EXPECT_EQ(told.faults, "outrider: " + pipe + ": not a regular file\n");
  EXPECT_THAT(told.out, HasSubstr("y.kv-plan"));
}

TEST_F(Plans, AreSmallFiles) {
  const std::string path = directory_ + "/x.kv-plan";
  StoredKvPlan all_pairs = a_plan();
  while (all_pairs.plan.candidates.size() < 256) {
    all_pairs.plan.candidates.push_back(all_pairs.plan.candidates[1]);
  }
  ASSERT_TRUE(write_kv_plan(path, all_pairs).ok());
  EXPECT_TRUE(read_kv_plan(path).ok()) << "of more kinds than there are";
  ASSERT_TRUE(write_kv_plan(path, a_plan()).ok());
  std::ofstream(path, std::ios::app) << std::string(300'000, ' ');
  const auto large = read_kv_plan(path);
  ASSERT_FALSE(large.ok()) << "white space, but too much of it";
  EXPECT_THAT(large.error().message, HasSubstr("over 262144 bytes"));
}

TEST_F(Plans, ReplaceWhatAKilledProcessLeft) {
  const std::string path = directory_ + "/x.kv-plan";
  const std::string part = path + ".part-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(part.c_str(), 0600), 0);
  ASSERT_TRUE(write_kv_plan(path, a_plan()).ok());
  EXPECT_TRUE(read_kv_plan(path).ok());
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(Plans, OfAStoreAreFoundInItsDirectory) {
  fs::create_directories(directory_ + "/db");
  const auto none = inspected(directory_);
  EXPECT_EQ(none.code, k_exit_failed);
  EXPECT_EQ(none.faults, "outrider: no *.kv-plan in " + directory_ + "\n");
  fs::create_directories(directory_ + "/plans");
  EXPECT_EQ(inspected(directory_).faults,
            "outrider: no *.kv-plan in " + directory_ + " or " + directory_ + "/plans\n");
  const std::string path = directory_ + "/plans/x.kv-plan";
  ASSERT_TRUE(write_kv_plan(path, a_plan()).ok());
  const auto found = inspected(directory_);
  EXPECT_EQ(found.code, k_exit_done) << found.faults;
  EXPECT_THAT(found.out, testing::StartsWith(path + "\n"));
}

TEST_F(Plans, InspectionNamesADirectoryInTheirPlace) {
  const std::string path = directory_ + "/x.kv-plan";
  fs::create_directories(path);
  for (const std::string& asked : {directory_, path}) {
    const auto told = inspected(asked);
    EXPECT_EQ(told.code, k_exit_failed);
    EXPECT_EQ(told.faults, "outrider: " + path +
                               ": a directory in a plan's place: no plan can be kept under this "
                               "name until it is removed\n");
  }
}

TEST(InspectPlan, ShowsEachCandidateWithItsFiguresAndMovesNoCursor) {
  StoredKvPlan stored = a_plan();
  stored.model = "evil\x1b[2J";
  const std::string text = plan_text("data/x.kv-plan", stored);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, AllOf(HasSubstr("q8_0+hadamard"), HasSubstr("chosen: "), HasSubstr("poor: NLL"),
                          HasSubstr("over budget: 100 tokens take 2 MiB"),
                          HasSubstr("2023-11-14 22:13:20 UTC, timings vary by 13 %\n"),
                          HasSubstr("2.25000")));
  EXPECT_THAT(text, HasSubstr("holds until 2023-11-21 22:13:20 UTC (604800 s) by the default "
                              "plan-max-age-s; "));
  stored.plan.candidates[3].spread = 3;
  EXPECT_THAT(plan_text("data/x.kv-plan", stored),
              AllOf(HasSubstr("timings vary by 200 %: the machine was busy\n"),
                    HasSubstr(" (604800 s) by the default plan-max-age-s, without a store-dir "
                              "until 2023-11-14 23:13:20 UTC (3600 s); ")));
}

TEST(InspectPlan, SaysOnceWhichFileItCannotRead) {
  CLI::App app;
  Action action;
  add_inspect_plan(app, action);
  app.parse("plan /nowhere");
  testing::internal::CaptureStderr();
  EXPECT_EQ(action(), k_exit_failed);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "outrider: /nowhere: No such file or directory\n");
}

/// Starts of one model with one directory of plans.
class Starts : public testing::Test {
 protected:
  Starts() {
    fs::remove_all(directory_);
    set("kv-kind", "auto");
    set("kv-candidates", "q8_0");
    set("model", "tests/support/models/tiny-llama.gguf");
    set("threads", "1");
    set("kv-memory-mb", "64");
    set("ctx", "64");
    set("plan-dir", directory_);
  }
  ~Starts() override { fs::remove_all(directory_); }

  void set(const char* name, const std::string& value) {
    const auto done = settings_.set(name, value, "flag");
    OUTRIDER_CHECK(done.ok(), done.error().message);
  }
  /// What it said.
  std::string start() {
    said_.clear();
    warned_.clear();
    asked_ = 0;
    options_ = engine_options(settings_);
    const auto done = plan_kv_kinds(model(), settings_,
                                    {.clock = clock_,
                                     .now = UnixTime(std::chrono::seconds(now_)),
                                     .go_on = [this] { return ++asked_ > 0; },
                                     .inform = [this](const std::string& text) { said_ += text; },
                                     .warn = [this](const std::string& text) { warned_ += text; }},
                                    options_);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return said_;
  }
  static std::shared_ptr<const model::LoadedModel> model() {
    static const auto loaded = model::load_model("tests/support/models/tiny-llama.gguf",
                                                 kernels::make_cpu_ops(1, kernels::default_isa()));
    return loaded.value();
  }
  /// As if the steps had been timed with that spread.
  void keep_with(double spread) const {
    auto stored = read_kv_plan(only_file());
    ASSERT_TRUE(stored.ok());
    for (auto& candidate : stored->plan.candidates) candidate.spread = spread;
    ASSERT_TRUE(choose_kv(stored->plan).ok());
    ASSERT_TRUE(write_kv_plan(only_file(), *stored).ok());
  }
  std::string only_file() const { return only_file(directory_); }
  static std::string only_file(const std::string& directory) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }

  const std::string directory_ = testing::TempDir() + "outrider_kv_plans";
  Settings settings_;
  SteadyClock clock_;
  int64_t now_ = 1'700'000'000;
  model::EngineOptions options_;
  int asked_ = 0;  ///< how often it asked whether to go on
  std::string said_;
  std::string warned_;
};

TEST_F(Starts, MeasureOnceAndThenUseThePlan) {
  EXPECT_THAT(start(), HasSubstr("measured in"));
  const auto stored = read_kv_plan(only_file());
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->plan.chosen()->kinds, options_.kv_kinds);
  EXPECT_THAT(start(), HasSubstr(only_file()));
  EXPECT_EQ(warned_, "");
  keep_with(1);  // whatever this machine does
  now_ += 604'799;
  EXPECT_THAT(start(), HasSubstr(only_file()));
}

TEST_F(Starts, MeasureAnewWhenThePlanIsOldOrFromTheFuture) {
  start();
  now_ += 604'800;
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("plan-max-age-s"));
  EXPECT_THAT(start(), HasSubstr(only_file())) << "the new one is kept";
  now_ -= 1;
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("future"));
  set("plan-max-age-s", "0");
  now_ += int64_t{1} << 31;
  EXPECT_THAT(start(), HasSubstr(only_file())) << "0: never too old";
}

TEST_F(Starts, MeasureSoonerAnewWhatWasTimedOnABusyMachine) {
  EXPECT_THAT(start(), HasSubstr(" s, timings vary by "));
  const std::string path = only_file();
  keep_with(model::k_noisy_spread);
  now_ += k_noisy_plan_max_age_s;
  EXPECT_THAT(start(), HasSubstr(path)) << "not busy";
  keep_with(2);
  now_ -= 1;
  EXPECT_THAT(start(), HasSubstr(path)) << "young";
  now_ += 1;
  set("store-dir", "store");
  EXPECT_THAT(start(), HasSubstr(path)) << "blocks of these kinds are stored";
  set("store-dir", "");
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("its timings varied by 100 %: the machine was busy"));
}

TEST_F(Starts, MeasureForEachRequestOfItsOwn) {
  start();
  set("ctx", "65");
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_EQ(warned_, "");
  set("ctx", "64");
  EXPECT_THAT(start(), Not(HasSubstr("measured in")));
}

TEST_F(Starts, NeverTrustAFileThatIsDamagedOrOfAnother) {
  start();
  const std::string path = only_file();
  std::ofstream(path, std::ios::app) << "x";
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr(path));
  EXPECT_THAT(start(), HasSubstr(path)) << "mended";
  StoredKvPlan other = a_plan();
  ASSERT_TRUE(write_kv_plan(path, other).ok());
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("of another model"));
}

TEST_F(Starts, WithoutADirectoryOrAWritableOneStillHaveTheirKinds) {
  set("plan-dir", "");
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_FALSE(fs::exists(directory_));
  std::ofstream(directory_) << "a file";
  set("plan-dir", directory_);
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("cannot write"));
}

TEST_F(Starts, WithAStoreKeepTheirPlanInItsDirectory) {
  set("plan-dir", "");
  set("store-dir", directory_);
  EXPECT_THAT(start(), HasSubstr("; kept in " + directory_ + "/plans/"));
  EXPECT_EQ(warned_, "");
  const kernels::KvKinds kinds = options_.kv_kinds;
  EXPECT_THAT(start(), HasSubstr(only_file(directory_ + "/plans")));
  EXPECT_EQ(options_.kv_kinds, kinds);
  set("plan-dir", directory_ + "/others");
  EXPECT_THAT(start(), HasSubstr("; kept in " + directory_ + "/others/"));
}

TEST_F(Starts, WarnWhenANewPlanLeavesTheStoredBlocksBehind) {
  set("plan-dir", "");
  set("store-dir", directory_);
  set("kv-candidates", "fp16");
  start();
  fs::create_directories(directory_ + "/db");
  now_ += 604'800;
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, Not(HasSubstr("not found"))) << "the same kind";
  const std::string path = only_file(directory_ + "/plans");
  auto stored = read_kv_plan(path);
  ASSERT_TRUE(stored.ok());
  stored->plan.candidates.at(0).kinds = {KvKind::q8_0, KvKind::q8_0};
  ASSERT_TRUE(write_kv_plan(path, *stored).ok());
  now_ += 604'800;
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_THAT(warned_, HasSubstr("blocks that " + directory_ +
                                 " has of the last plan's KV kind, q8_0, are not found with fp16; "
                                 "--kv-kind q8_0 finds them"));
  start();
  EXPECT_EQ(warned_, "") << "once";
}

TEST_F(Starts, AskBetweenOtherFilesWhetherToGoOnAndWaitForNoPipe) {
  set("plan-dir", "");
  set("store-dir", directory_);
  start();
  const int alone = asked_;
  const std::string plans = directory_ + "/plans";
  fs::create_directories(directory_ + "/db");
  constexpr int k_files = 10;
  for (int i = 0; i < k_files; ++i) {
    std::ofstream(plans + "/" + std::to_string(i) + ".kv-plan") << std::string(100'000, '[');
  }
  ASSERT_EQ(::mkfifo((plans + "/pipe.kv-plan").c_str(), 0600), 0);
  now_ += 604'800;
  EXPECT_THAT(start(), HasSubstr("measured in"));
  EXPECT_GE(asked_, alone + k_files);
}

TEST_F(Starts, SayThatADirectoryStandsInThePlansPlaceAndServeWithTheNewPlan) {
  set("kv-candidates", "fp16");
  start();
  const std::string path = only_file();
  const kernels::KvKinds kinds = options_.kv_kinds;
  fs::remove(path);
  fs::create_directories(path);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(start(), HasSubstr("measured in"));
    EXPECT_EQ(options_.kv_kinds, kinds);
    EXPECT_THAT(warned_, HasSubstr("KV plan " + path +
                                   ": a directory in a plan's place: no plan can be kept under "
                                   "this name until it is removed; measuring anew"));
    EXPECT_THAT(warned_, HasSubstr("not kept: each start measures anew"));
  }
  fs::remove(path);
  EXPECT_THAT(start(), HasSubstr("kept in " + path));
  EXPECT_EQ(warned_, "");
}

TEST_F(Starts, MeasureOnceForAllKvMemoryThatHoldsTheSameCandidates) {
  start();
  set("kv-memory-mb", "65");
  EXPECT_THAT(start(), HasSubstr(only_file())) << "all fit both";
}

TEST_F(Starts, SayWhichSettingIsTooSmall) {
  set("kv-candidates", "q8_0 q3");
  options_ = engine_options(settings_);
  options_.kv_memory_bytes = 1;
  const auto done =
      plan_kv_kinds(model(), settings_,
                    {.clock = clock_, .now = {}, .go_on = {}, .inform = {}, .warn = {}}, options_);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().field, "kv-memory-mb");
}

TEST_F(Starts, OfNamedKindsMeasureNothing) {
  set("kv-kind", "q4_0");
  EXPECT_EQ(start(), "");
  EXPECT_EQ(options_.kv_kinds.k, KvKind::q4_0);
}

}  // namespace
}  // namespace outrider::tools
