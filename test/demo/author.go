package main

import (
	"cmp"
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
	field := fmt.Sprintf("k:{\"type\":%q}", condition)
	for _, entry := range object.GetManagedFields() {
		var owned struct {
			Status struct {
				Conditions map[string]map[string]any `json:"f:conditions"`
			} `json:"f:status"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if owned.Status.Conditions[field]["f:status"] != nil {
			return cmp.Or(writers[entry.Manager], entry.Manager)
		}
	}
	return "somebody"
}
