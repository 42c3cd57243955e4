#include "train/stop_request.h"

#include <signal.h>

#include <csignal>
#include <cstddef>
#include <iterator>

namespace tempo::train {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};
constexpr const char* kNames[] = {"SIGTERM", "SIGINT", "SIGUSR1"};

volatile std::sig_atomic_t received = 0;

/// The next signal, of any of the three, does what it does without us.
void receive(int number) {
  received = number;
  for (const int other : kSignals) ::signal(other, SIG_DFL);
}

}  // namespace

StopRequest::StopRequest() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = receive;
  action.sa_flags = SA_RESTART;  // no call of a library is to fail because of it
  for (const int number : kSignals) ::sigaction(number, &action, nullptr);
}

StopRequest::~StopRequest() {
  for (const int number : kSignals) ::signal(number, SIG_IGN);
}

const char* StopRequest::requested() {
  for (std::size_t index = 0; index < std::size(kSignals); ++index) {
    if (received == kSignals[index]) return kNames[index];
  }
  return nullptr;
}

}  // namespace tempo::train
