// Package faultproxy stands between a client and the API server and does, on demand, what networks, load balancers
// and API servers do to clients on bad days.
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
// Without a fault it passes on everything as it is, the bearer token included: the API server knows the client and
// not the proxy. Three things can be made to fail: requests, by rules ([Proxy.Inject]); running watches in protobuf
// ([Proxy.EndWatches], [Proxy.CutWatches], [Proxy.ExpireWatches]); and connections ([Proxy.BreakConnections],
// [Proxy.LoseConnections], [Proxy.Silence]).
//
// Only faults that are delays wait by the clock. A test that has to know that something has come to pass asks
// [Proxy.Await].
package faultproxy
