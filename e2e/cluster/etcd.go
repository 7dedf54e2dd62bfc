package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Compact has etcd forget every revision but the last. Watches and lists that go on from an older one, and are not
// served from the API server's cache, are then told that it has expired (410).
func (c *Cluster) Compact(ctx context.Context) error {
	var last struct {
		Header struct {
			Revision json.Number `json:"revision"`
		} `json:"header"`
	}
	// Any read tells the revision: this one asks how many keys there are that are a zero byte.
	if err := c.etcd(ctx, "kv/range", map[string]any{"key": []byte{0}, "count_only": true}, &last); err != nil {
		return err
	}
	return c.etcd(ctx, "kv/compaction", map[string]any{"revision": last.Header.Revision, "physical": true}, nil)
}

// etcd calls a method of etcd through its JSON gateway, which spares us its client, and decodes the answer where out is not nil.
func (c *Cluster) etcd(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	target := c.plane.Etcd.URL.JoinPath("v3", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", method, response.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
