package faults

// Variables in the environment of the controller. The first two have it look after a connection on which
// nothing comes in sooner than the 30 and 15 seconds that are client-go's defaults; the last makes it list.
var (
	impatient = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}
	listing   = []string{"KUBE_FEATURE_WatchListClient=false"}
)

// slowPlaces is how many calls to slow targets the controller has in flight, beside --concurrent-writes.
const slowPlaces = 16

// watched are the resources that the controller watches.
var watched = []string{"configmaps", "namespaces"}
