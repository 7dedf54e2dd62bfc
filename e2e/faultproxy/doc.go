// Package faultproxy stands between a client and the API server and does, on demand, what networks, load
// balancers and API servers do to clients on bad days.
//
//	p, err := faultproxy.Start(faultproxy.Options{Kubeconfig: file, Dir: t.TempDir()})
//	if err != nil { … }
//	defer p.Close()
//	// run the client with p.Kubeconfig()
//	resets := p.Inject(faultproxy.Rule{
//		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Probability: 0.3,
//		Fault: faultproxy.Fault{Kind: faultproxy.ResetAfter},
//	})
//	…
//	resets.Stop()
//
// It speaks HTTP/2 under TLS with a certificate of its own, on loopback, on a free port. Without a fault it
// passes on everything as it is, the bearer token included, and watches event by event, never packed: the API
// server knows the client and not the proxy.
//
// Three things can be made to fail: requests, by rules ([Proxy.Inject]); watches in protobuf that are running
// ([Proxy.EndWatches], [Proxy.CutWatches], [Proxy.ExpireWatches]); and connections
// ([Proxy.BreakConnections], [Proxy.LoseConnections], [Proxy.Silence]).
//
// Nothing in it waits by the clock but faults that are delays. A test that has to know that something has
// come to pass asks [Proxy.Await].
package faultproxy
