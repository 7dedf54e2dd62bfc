package main

import "testing"

func TestClientConfig(t *testing.T) {
	outsideOfAnyCluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
	for name, tc := range map[string]struct {
		args []string
		host string
	}{
		"current context": {[]string{kubeconfig}, "https://one.example"},
		"--context":       {[]string{kubeconfig, "--context=two"}, "https://two.example"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := newOptions()
			noError(t, parse(combine(opts.bind()), tc.args))
			config, err := opts.clientConfig()
			noError(t, err)
			if config.Host != tc.host || config.QPS != -1 {
				t.Errorf("host %s, QPS %v, want %s and no throttle", config.Host, config.QPS, tc.host)
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
