// Package faults shows that the controller does no harm, and recovers, when something around it fails: the API
// server, a connection, a watch, a leader, a permission.
package faults

import (
	"flag"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestMain has all tests begin at once: these mostly wait, for the end of a lease or for a minute.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "30")
	suite.Main(m)
}

// watched are the resources that the controller watches, and reads the verbs that fill its
// caches.
var (
	watched = []string{"configmaps", "namespaces"}
	reads   = []string{"watch", "list"}
)

// expire ends the watches of resources, and has the API server answer that their resourceVersion has expired.
func expire(p *faultproxy.Proxy, resources ...string) {
	for _, resource := range resources {
		p.Inject(faultproxy.Rule{
			Verbs: []string{"watch"}, Resources: []string{resource}, Count: 1, Kind: faultproxy.Gone,
		})
	}
	p.EndWatches(resources...)
}
