// Package faults shows that the controller does no harm, and recovers, when something around it fails: the API
// server, a connection, a watch, a leader, a permission.
package faults

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// watched are the resources that the controller watches.
var watched = []string{"configmaps", "namespaces"}
