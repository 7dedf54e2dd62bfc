package main

import (
	"errors"
	"testing"
)

func TestClientConfig(t *testing.T) {
	outsideOfAnyCluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
	for _, test := range []struct {
		name  string
		args  []string
		host  string
		qps   float32
		burst int
	}{
		{"no throttle by default", nil, "https://one.example", -1, 0},
		{"other context", []string{"--context=two"}, "https://two.example", -1, 0},
		{"rate below one", []string{"--kube-api-qps=0.5"}, "https://one.example", 0.5, 1},
		{"rate and burst", []string{"--kube-api-qps=20", "--kube-api-burst=30"}, "https://one.example", 20, 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := newOptions()
			invalid, err := parse(combine(opts.bind()), append(test.args, kubeconfig))
			noError(t, errors.Join(invalid, err))
			config, err := opts.clientConfig()
			noError(t, err)
			if config.Host != test.host || config.QPS != test.qps || config.Burst != test.burst {
				t.Errorf("host %s, QPS %v, burst %d, want %s, %v, %d",
					config.Host, config.QPS, config.Burst, test.host, test.qps, test.burst)
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
		})
	}
}
