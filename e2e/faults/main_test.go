// Package faults shows that the controller does no harm, and recovers, when something around it fails: the API
// server, a connection, a watch, a leader, a permission.
package faults

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// Variables in the environment of the controller. The first two have it look after a connection on which
// nothing comes in sooner than the 30 and 15 seconds that are client-go's defaults; the last makes it list.
var (
	impatient = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}
	listing   = []string{"KUBE_FEATURE_WatchListClient=false"}
)

// watched are the resources that the controller watches.
var watched = []string{"configmaps", "namespaces"}
