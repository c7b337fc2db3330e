package main

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The actors, as the commentary calls them.
const (
	kubemend          = "kubemend (check)" // its controller of MachineHealthChecks
	kubemendHost      = "kubemend (host)"  // its controller of HostRemediations
	controllerManager = "kube-controller-manager"
	kubelet           = "kubelet"
	machineSet        = "MachineSet"
	machineController = "Machine controller"
	clusterAPI        = "Cluster API core"
	provider          = "CAPM3 (simulated)"
	operator          = "BMO (simulated)"
	attacher          = "CSI (simulated)"
	demo              = "demo"
)

// writers are the actors behind the names under which the API server knows who writes.
var writers = map[string]string{
	"kubemend":                kubemend,
	"kube-controller-manager": controllerManager,
	"capi-core":               clusterAPI,
	"capi-machineset":         machineSet,
	"demo":                    kubelet, // on nodes; the simulated kubelets are part of this program
}

// authorOf is who wrote the status of a condition last, according to the API server.
func authorOf(object metav1.Object, condition string) string {
	path := []string{"f:status", "f:conditions", fmt.Sprintf(`k:{"type":%q}`, condition), "f:status"}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil || !owns(entry.FieldsV1.GetRawBytes(), path) {
			continue
		}
		if actor, known := writers[entry.Manager]; known {
			return actor
		}
		return entry.Manager
	}
	return "somebody"
}

// owns reports whether a set of fields has one at the end of a path.
func owns(fields []byte, path []string) bool {
	var node map[string]json.RawMessage
	for _, step := range path {
		node = nil
		if err := json.Unmarshal(fields, &node); err != nil {
			return false
		}
		next, found := node[step]
		if !found {
			return false
		}
		fields = next
	}
	return true
}
