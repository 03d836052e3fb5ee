// Where golden files and the default model lie.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace plumbline {

inline std::filesystem::path GoldenFolder() {
  return std::filesystem::path(PLUMBLINE_SOURCE_DIR) / "tests/golden";
}

// Names of the tiny checkpoints in golden/models, each a folder.
inline std::vector<std::string> TinyModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder() / "models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The path scripts/fetch_model prints; "" where it fails.
inline std::string DefaultModel() {
  const std::string command = std::string(PLUMBLINE_SOURCE_DIR) + "/scripts/fetch_model";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  char line[4096] = "";
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  if (pclose(pipe) != 0 || !read) return "";
  line[std::strcspn(line, "\n")] = '\0';
  return line;
}

}  // namespace plumbline
