BEGIN TRANSACTION;
CREATE TABLE deployments (
	endpoint_key VARCHAR(128) NOT NULL, 
	generation INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	previous TEXT, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (endpoint_key, generation)
);
INSERT INTO "deployments" VALUES('shop',1,'{"endpoint":"Shop","generation":1,"config_name":"shop","variants":[{"name":"blue","model":{"model_name":"shop","uri":"file:///m","compressed":null,"image":"","environment":[],"multi_model":false,"keeps_models":true},"instance_type":"ml.local.small","instance_count":1,"managed":null,"weight":1.0,"strategy":"LEAST_OUTSTANDING_REQUESTS","prefix_length_max":0,"concurrency_threshold":0,"download_timeout_s":3600.0,"startup_timeout_s":600.0}]}',NULL,1.0);
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
INSERT INTO "keys" VALUES('HXO6FKXKLQ6NFOWB','bearer','laptop',X'2D9D624E9F26691B5EF019FCFDF6DDF68255B92A0684A1D653F942FDE2D8C510',X'648B62A7E994F713F29F29E946AA2EDE',2.0,'invoke','shop');
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
CREATE TABLE settings (
	name VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "settings" VALUES('schema_version','2');
CREATE TABLE tags (
	arn_key VARCHAR(256) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (arn_key, name)
);
INSERT INTO "tags" VALUES('arn:aws:sagemaker:us-east-1:000000000000:endpoint/shop','team','a');
CREATE INDEX models_created ON models (created, "key");
CREATE INDEX endpoint_configs_created ON endpoint_configs (created, "key");
CREATE INDEX endpoints_created ON endpoints (created, "key");
COMMIT;
