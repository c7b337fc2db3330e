package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Stored returns what etcd holds under a key, such as "/registry/kubemend.io/hostremediations/default/node-1": an object as it was last written,
// in the version that it is stored in, whatever the API server makes of it for its readers.
func (c *ControlPlane) Stored(ctx context.Context, key string) ([]byte, error) {
	question, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.etcdPort.address()+"/v3/kv/range", bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	body, err := answered(http.DefaultClient, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if len(answer.KVs) == 0 {
		return nil, fmt.Errorf("read %s from etcd: there is nothing", key)
	}
	return answer.KVs[0].Value, nil
}
