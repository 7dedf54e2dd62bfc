package main

import "testing"

func TestClientConfig(t *testing.T) {
	outsideOfAnyCluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
	for host, args := range map[string][]string{
		"https://one.example": {kubeconfig}, // the current context
		"https://two.example": {kubeconfig, "--context=two"},
	} {
		opts := newOptions()
		noError(t, parse(combine(opts.bind()), args))
		config, err := opts.clientConfig()
		noError(t, err)
		if config.Host != host || config.QPS != -1 {
			t.Errorf("host %s, QPS %v, want %s and no throttle", config.Host, config.QPS, host)
		}
		if config.UserAgent != "mirror-controller/"+version()+" instance/default" {
			t.Errorf("user agent %q", config.UserAgent)
		}
		const protobuf = "application/vnd.kubernetes.protobuf"
		if config.ContentType != protobuf || config.AcceptContentTypes != protobuf+",application/json" {
			t.Errorf("sends %q, accepts %q, want protobuf, and JSON behind it", config.ContentType, config.AcceptContentTypes)
		}
		if !config.DisableCompression {
			t.Error("has the API server compress each event")
		}
	}
}
