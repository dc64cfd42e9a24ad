BEGIN TRANSACTION;
CREATE TABLE alarm_history (
	id INTEGER NOT NULL, 
	alarm VARCHAR(255) NOT NULL, 
	at DOUBLE NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	summary TEXT NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE alarms (
	name VARCHAR(255) NOT NULL, 
	arn VARCHAR(512) NOT NULL, 
	spec TEXT NOT NULL, 
	actions TEXT NOT NULL, 
	actions_enabled INTEGER NOT NULL, 
	omitted TEXT NOT NULL, 
	owner VARCHAR(512) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	state_reason TEXT NOT NULL, 
	state_reason_data TEXT NOT NULL, 
	state_updated DOUBLE NOT NULL, 
	configuration_updated DOUBLE NOT NULL, 
	revision INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE async_bodies (
	number INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "async_bodies" VALUES(1,X'7B7D');
CREATE TABLE async_notifications (
	number INTEGER NOT NULL, 
	message_id VARCHAR(64) NOT NULL, 
	topic TEXT NOT NULL, 
	message TEXT NOT NULL, 
	made DOUBLE NOT NULL, 
	due DOUBLE NOT NULL, 
	tries INTEGER NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "async_notifications" VALUES(1,'m','t','{}',1.0,2.0,0);
CREATE TABLE async_requests (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	endpoint VARCHAR(128) NOT NULL, 
	born DOUBLE NOT NULL, 
	inference_id VARCHAR(1024) NOT NULL, 
	accepted DOUBLE NOT NULL, 
	expires DOUBLE NOT NULL, 
	timeout_s DOUBLE NOT NULL, 
	input_uri TEXT NOT NULL, 
	body_bytes INTEGER NOT NULL, 
	meta BLOB NOT NULL, 
	content_type TEXT NOT NULL, 
	output_uri TEXT NOT NULL, 
	failure_uri TEXT NOT NULL, 
	success_topic TEXT NOT NULL, 
	error_topic TEXT NOT NULL, 
	answer_in_success INTEGER NOT NULL, 
	answer_in_error INTEGER NOT NULL
);
CREATE TABLE deployments (
	endpoint_key VARCHAR(128) NOT NULL, 
	generation INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	previous TEXT, 
	created DOUBLE NOT NULL, progress TEXT, 
	PRIMARY KEY (endpoint_key, generation)
);
INSERT INTO "deployments" VALUES('shop',1,'{"endpoint":"Shop","generation":1,"config_name":"shop","variants":[{"name":"blue","model":{"model_name":"shop","uri":"file:///m","compressed":null,"image":"","environment":[],"multi_model":false,"keeps_models":true},"instance_type":"ml.local.small","instance_count":1,"managed":null,"weight":1.0,"strategy":"LEAST_OUTSTANDING_REQUESTS","prefix_length_max":0,"concurrency_threshold":0,"download_timeout_s":3600.0,"startup_timeout_s":600.0,"guest":false,"cores_max":0}],"metrics_publish_s":0,"metrics_enhanced":false,"asynchronous":null}',NULL,1.0,NULL);
INSERT INTO "deployments" VALUES('many',1,'{"endpoint":"Many","generation":1,"config_name":"shop","variants":[{"name":"blue","model":null,"instance_type":"ml.local.small","instance_count":1,"managed":null,"weight":1.0,"strategy":"LEAST_OUTSTANDING_REQUESTS","prefix_length_max":0,"concurrency_threshold":0,"download_timeout_s":3600.0,"startup_timeout_s":600.0,"guest":false,"cores_max":0}],"metrics_publish_s":0,"metrics_enhanced":false,"asynchronous":null}',NULL,1.0,NULL);
CREATE TABLE endpoint_configs (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "endpoint_configs" VALUES('shop','shop','arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/shop','{"EndpointConfigName":"shop"}',1.0,1.0);
CREATE TABLE endpoints (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	failure_reason TEXT NOT NULL, 
	generation_last INTEGER NOT NULL, 
	active_generation INTEGER, 
	target_generation INTEGER, 
	PRIMARY KEY ("key")
);
INSERT INTO "endpoints" VALUES('shop','Shop','arn:aws:sagemaker:us-east-1:000000000000:endpoint/Shop','{}',1.0,2.0,'InService','',1,1,NULL);
INSERT INTO "endpoints" VALUES('many','Many','arn:aws:sagemaker:us-east-1:000000000000:endpoint/Many','{}',1.0,2.0,'InService','',1,1,NULL);
CREATE TABLE inference_components (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	endpoint_key VARCHAR(128) NOT NULL, 
	variant VARCHAR(128) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	failure_reason TEXT NOT NULL, 
	copies INTEGER NOT NULL, 
	revision_last INTEGER NOT NULL, 
	active TEXT NOT NULL, 
	target TEXT, 
	former_request TEXT, 
	PRIMARY KEY ("key")
);
INSERT INTO "inference_components" VALUES('chat','Chat','arn:aws:sagemaker:us-east-1:000000000000:inference-component/Chat','{"RuntimeConfig":{"CopyCount":2}}',3.0,3.0,'many','blue','Creating','',2,1,'{"number":1,"model":{"model_name":"intent","uri":"file:///m","compressed":null,"image":"","environment":[],"multi_model":false,"keeps_models":true},"need":{"memory_bytes":134217728,"cores":0.5,"accelerators":0,"whole_instance":false,"memory_bytes_max":268435456},"strategy":"BINPACK","download_timeout_s":60.0,"startup_timeout_s":70.0,"batch":0,"batch_wait_s":0.0,"base":""}',NULL,NULL);
CREATE TABLE inference_experiments (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	endpoint_key VARCHAR(128) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	status_reason TEXT NOT NULL, 
	starts DOUBLE NOT NULL, 
	ends DOUBLE NOT NULL, 
	completed DOUBLE, 
	"before" TEXT, 
	base TEXT, 
	config TEXT, 
	config_count INTEGER NOT NULL, 
	begun INTEGER NOT NULL, 
	end_status VARCHAR(32) NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE job_schedule_owners (
	schedule_key VARCHAR(64) NOT NULL, 
	owner VARCHAR(128) NOT NULL, 
	PRIMARY KEY (schedule_key)
);
CREATE TABLE job_schedule_runs (
	schedule_key VARCHAR(64) NOT NULL, 
	due DOUBLE NOT NULL, 
	last DOUBLE NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason VARCHAR(32) NOT NULL, 
	message TEXT NOT NULL, 
	begun DOUBLE NOT NULL, 
	ended DOUBLE, 
	PRIMARY KEY (schedule_key, due)
);
CREATE TABLE job_schedules (
	"key" VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	expression TEXT NOT NULL, 
	timezone VARCHAR(64) NOT NULL, 
	missed VARCHAR(16) NOT NULL, 
	overlap INTEGER NOT NULL, 
	starts DOUBLE, 
	ends DOUBLE, 
	job TEXT NOT NULL, 
	paused INTEGER NOT NULL, 
	due DOUBLE, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "job_schedules" VALUES('nightly','Nightly','cron(0 3 * * ? *)','UTC','once',0,NULL,NULL,'{}',0,NULL,1.0);
CREATE TABLE keys (
	key_id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	label TEXT NOT NULL, 
	secret BLOB NOT NULL, 
	salt BLOB NOT NULL, 
	created DOUBLE NOT NULL, 
	scope VARCHAR(16) DEFAULT 'admin' NOT NULL, 
	endpoints TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (key_id)
);
INSERT INTO "keys" VALUES('O7WLPSETCM5UL5J4','bearer','laptop',X'7442410B5F19859772C5D715DAFDAB3D2157FA80F96FC665B4A622C378801E2D',X'F4BEED5B32F38591797D6E72DE90EDB8',2.0,'invoke','shop');
CREATE TABLE leader (
	epoch INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	address TEXT NOT NULL, 
	session VARCHAR(64) NOT NULL, 
	beat BIGINT NOT NULL, 
	since DOUBLE NOT NULL, 
	PRIMARY KEY (epoch)
);
CREATE TABLE metric_series (
	digest VARCHAR(64) NOT NULL, 
	written_at DOUBLE NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE models (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "models" VALUES('shop','shop','arn:aws:sagemaker:us-east-1:000000000000:model/shop','{"ModelName":"shop"}',1.0,1.0);
CREATE TABLE penstock_schema (version_num VARCHAR(32) NOT NULL, CONSTRAINT penstock_schema_pkc PRIMARY KEY (version_num));
INSERT INTO "penstock_schema" VALUES('0008');
CREATE TABLE scalable_targets (
	"key" VARCHAR(512) NOT NULL, 
	resource_id VARCHAR(256) NOT NULL, 
	dimension VARCHAR(64) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	role_arn TEXT NOT NULL, 
	capacity_min INTEGER NOT NULL, 
	capacity_max INTEGER NOT NULL, 
	suspended TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE scaling_activities (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	target_key VARCHAR(512) NOT NULL, 
	resource_id VARCHAR(256) NOT NULL, 
	dimension VARCHAR(64) NOT NULL, 
	description TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	started DOUBLE NOT NULL, 
	ended DOUBLE, 
	status VARCHAR(32) NOT NULL, 
	message TEXT NOT NULL, 
	details TEXT NOT NULL, 
	not_scaled TEXT NOT NULL, 
	change TEXT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE scaling_policies (
	target_key VARCHAR(512) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	arn VARCHAR(1024) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	spec TEXT NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (target_key, name)
);
CREATE TABLE scheduled_actions (
	target_key VARCHAR(512) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	arn VARCHAR(1024) NOT NULL, 
	schedule TEXT NOT NULL, 
	timezone VARCHAR(64) NOT NULL, 
	starts DOUBLE, 
	ends DOUBLE, 
	capacity_min INTEGER, 
	capacity_max INTEGER, 
	created DOUBLE NOT NULL, 
	due DOUBLE, 
	PRIMARY KEY (target_key, name)
);
CREATE TABLE served_targets (
	endpoint_key VARCHAR(128) NOT NULL, 
	target VARCHAR(1024) NOT NULL, 
	served TEXT NOT NULL, 
	PRIMARY KEY (endpoint_key, target)
);
INSERT INTO "served_targets" VALUES('many','b','{"target":"b","serves":"b","incoming":"b-2","policy":{"kind":"ALL_AT_ONCE","size":null,"rollback_size":null,"wait_s":0.0,"termination_wait_s":0.0,"execution_s_max":0.0,"alarms":[],"agreement":null},"progress":null,"why":""}');
CREATE TABLE settings (
	name VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "settings" VALUES('schema_version','8');
CREATE TABLE tags (
	arn_key VARCHAR(256) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (arn_key, name)
);
INSERT INTO "tags" VALUES('arn:aws:sagemaker:us-east-1:000000000000:endpoint/shop','team','a');
CREATE TABLE target_model_crashes (
	number INTEGER NOT NULL, 
	endpoint_key VARCHAR(128) NOT NULL, 
	at DOUBLE NOT NULL, 
	models TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "target_model_crashes" VALUES(1,'shop',3.0,'[["a", "d"]]');
CREATE TABLE target_model_pins (
	endpoint_key VARCHAR(128) NOT NULL, 
	model VARCHAR(1024) NOT NULL, 
	PRIMARY KEY (endpoint_key, model)
);
CREATE TABLE transform_crashes (
	job_key VARCHAR(128) NOT NULL, 
	object INTEGER NOT NULL, 
	span INTEGER NOT NULL, 
	crash_case TEXT NOT NULL, 
	PRIMARY KEY (job_key, object, span)
);
CREATE TABLE transform_jobs (
	"key" VARCHAR(128) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	arn VARCHAR(256) NOT NULL, 
	request TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	modified DOUBLE NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	failure_reason TEXT NOT NULL, 
	owner VARCHAR(128) NOT NULL, 
	priority INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	span_bytes BIGINT NOT NULL, 
	started DOUBLE, 
	ended DOUBLE, 
	totals TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE transform_objects (
	job_key VARCHAR(128) NOT NULL, 
	number INTEGER NOT NULL, 
	object_key TEXT NOT NULL, 
	uri TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	stamp TEXT NOT NULL, 
	assembled INTEGER NOT NULL, 
	failure TEXT NOT NULL, 
	PRIMARY KEY (job_key, number)
);
CREATE TABLE transform_spans (
	job_key VARCHAR(128) NOT NULL, 
	object INTEGER NOT NULL, 
	span INTEGER NOT NULL, 
	records BIGINT NOT NULL, 
	refused BIGINT NOT NULL, 
	bytes_in BIGINT NOT NULL, 
	bytes_out BIGINT NOT NULL, 
	run_s DOUBLE NOT NULL, 
	PRIMARY KEY (job_key, object, span)
);
CREATE INDEX models_created ON models (created, "key");
CREATE INDEX endpoint_configs_created ON endpoint_configs (created, "key");
CREATE INDEX endpoints_created ON endpoints (created, "key");
CREATE INDEX target_model_crashes_endpoint ON target_model_crashes (endpoint_key, at);
CREATE INDEX inference_components_created ON inference_components (created, "key");
CREATE INDEX ix_inference_components_endpoint_key ON inference_components (endpoint_key);
CREATE INDEX alarms_owner ON alarms (owner);
CREATE INDEX alarms_revision ON alarms (revision);
CREATE INDEX alarm_history_alarm ON alarm_history (alarm, at);
CREATE INDEX alarm_history_at ON alarm_history (at);
CREATE INDEX scaling_activities_target ON scaling_activities (target_key, number);
CREATE INDEX scaling_activities_started ON scaling_activities (started);
CREATE INDEX scaling_activities_id ON scaling_activities (id);
CREATE INDEX transform_jobs_created ON transform_jobs (created, "key");
CREATE INDEX async_requests_endpoint ON async_requests (endpoint, born, number);
CREATE INDEX async_requests_expires ON async_requests (endpoint, born, expires);
CREATE INDEX async_notifications_due ON async_notifications (due);
CREATE INDEX job_schedule_runs_state ON job_schedule_runs (state);
CREATE INDEX inference_experiments_created ON inference_experiments (created, "key");
CREATE INDEX ix_inference_experiments_endpoint_key ON inference_experiments (endpoint_key);
DELETE FROM "sqlite_sequence";
COMMIT;
